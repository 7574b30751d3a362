// Package procgroup runs programs that lead a process group, so that what a program starts can be ended with it.
//
//	Lead ──► cmd.Start ──► Wait: sees it to its end, kills what it left behind, collects it
//	                       Signal: to all of the group, at any time
//
// The group has the number of its leader, and the number may be another's once the leader is collected: after that
// nothing is signalled any more. On Linux the kernel kills the program when the thread that started it ends, so whoever
// starts it keeps that thread (runtime.LockOSThread) until Wait has returned. Where there are no groups the program alone
// is killed.
package procgroup

import (
	"os/exec"
	"sync"
	"syscall"
)

// A Group is one run of a program and what it starts. Make one with Lead. Signal is safe for concurrent use.
type Group struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	gone bool // its number may be another's now
}

// Lead makes the program that cmd will start the leader of a group of its own.
func Lead(cmd *exec.Cmd) *Group {
	setUp(cmd)
	return &Group{cmd: cmd}
}

// Wait sees the program, which was started, to its end, kills what it left behind, and collects it: how it ended is in
// cmd.ProcessState. While it is not collected nobody else can be given the group's number; where we cannot look before we
// collect, that moment remains. Call it once.
func (g *Group) Wait() {
	if awaitExit(g.cmd) {
		g.killRest()
		_ = g.cmd.Wait()
		return
	}
	_ = g.cmd.Wait()
	g.killRest()
}

func (g *Group) killRest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	killGroup(g.cmd, syscall.SIGKILL)
	g.gone = true
}

// Signal signals all of the group, if it is there still.
func (g *Group) Signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		killGroup(g.cmd, sig)
	}
}
