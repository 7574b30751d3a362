package executor

// Peers is how many workers the executor remembers.
func (e *Executor) Peers() int {
	n := 0
	e.peers.byID.Range(func(_, _ any) bool { n++; return true })
	return n
}

// Held is how many attempts stand on the accounts of workers.
func (e *Executor) Held() int {
	n := 0
	e.peers.byID.Range(func(_, v any) bool {
		p := v.(*peer)
		p.mu.Lock()
		n += len(p.attempts)
		p.mu.Unlock()
		return true
	})
	return n
}

// KnownTools is how many tools the executor keeps a state of.
func (e *Executor) KnownTools() int {
	n := 0
	e.tools.Range(func(_, _ any) bool { n++; return true })
	return n
}
