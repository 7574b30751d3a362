package worker

import "time"

// A memory is a bounded map that forgets: what was kept longer ago than ttl, and the oldest of what is too much. An item
// that was added and not yet kept is held until it is; its holder sees to it that these are few.
// It is not safe for concurrent use.
type memory[K comparable, V any] struct {
	ttl      time.Duration
	maxItems int
	maxBytes int

	items          map[K]*item[K, V]
	oldest, newest *item[K, V] // of the kept ones
	kept, bytes    int
}

type item[K comparable, V any] struct {
	key          K
	val          V
	kept         bool
	size         int
	at           time.Time
	older, newer *item[K, V]
}

func newMemory[K comparable, V any](ttl time.Duration, maxItems, maxBytes int) *memory[K, V] {
	return &memory[K, V]{ttl: ttl, maxItems: maxItems, maxBytes: maxBytes, items: map[K]*item[K, V]{}}
}

// get is the item of key, or nil where it is not known or was forgotten.
func (m *memory[K, V]) get(key K, now time.Time) *item[K, V] {
	it := m.items[key]
	if it == nil || m.old(it, now) {
		return nil
	}
	return it
}

func (m *memory[K, V]) old(it *item[K, V], now time.Time) bool {
	return it.kept && now.Sub(it.at) > m.ttl
}

// hold is the item of key, made where there is none, and not forgotten until it is kept again.
func (m *memory[K, V]) hold(key K, now time.Time) *item[K, V] {
	it := m.items[key]
	if it != nil {
		known := !m.old(it, now)
		m.unlink(it)
		if known {
			return it
		}
	}
	it = &item[K, V]{key: key}
	m.items[key] = it
	return it
}

// keep makes it the newest item, of that many bytes, and forgets what is too much.
func (m *memory[K, V]) keep(it *item[K, V], size int, now time.Time) {
	m.unlink(it)
	it.kept, it.size, it.at = true, size, now
	it.older = m.newest
	if m.newest != nil {
		m.newest.newer = it
	} else {
		m.oldest = it
	}
	m.newest = it
	m.kept++
	m.bytes += size
	m.forget(now)
}

// forget drops what is too old or too much.
func (m *memory[K, V]) forget(now time.Time) {
	for it := m.oldest; it != nil; it = m.oldest {
		if m.kept <= m.maxItems && m.bytes <= m.maxBytes && now.Sub(it.at) <= m.ttl {
			return
		}
		m.unlink(it)
		delete(m.items, it.key)
	}
}

func (m *memory[K, V]) unlink(it *item[K, V]) {
	if !it.kept {
		return
	}
	if it.older != nil {
		it.older.newer = it.newer
	} else {
		m.oldest = it.newer
	}
	if it.newer != nil {
		it.newer.older = it.older
	} else {
		m.newest = it.older
	}
	it.older, it.newer, it.kept = nil, nil, false
	m.kept--
	m.bytes -= it.size
}
