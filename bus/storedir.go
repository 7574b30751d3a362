package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// A storeDir is a store directory that this process holds. nats-server takes no lock: two of them on one directory both
// acknowledge the same revision.
type storeDir struct {
	path string
	temp bool
	lock *flock.Flock
}

// lockName is a file in the store directory. Its lock is what counts; in it is the holder's process id, for people.
const lockName = "toolbus.lock"

// tempPattern names the directories that we make, and may remove when their maker died.
const tempPattern = "toolbus-nats-*"

// claimDir takes path, or a new temporary directory where path is empty.
func claimDir(path string) (*storeDir, error) {
	d := &storeDir{path: path, temp: path == ""}
	var err error
	if d.temp {
		removeStale(os.TempDir())
		d.path, err = os.MkdirTemp("", tempPattern)
	} else {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}

	file := filepath.Join(d.path, lockName)
	d.lock = flock.New(file, flock.SetFlag(os.O_CREATE|os.O_RDWR))
	ok, err := d.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("store directory %s: lock it: %w", d.path, err)
	}
	if !ok {
		return nil, fmt.Errorf("store directory %s is in use by %s; stop it or pass another --store-dir", d.path, holder(file))
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		d.release()
		return nil, fmt.Errorf("store directory %s: %w", d.path, err)
	}
	return d, nil
}

func holder(file string) string {
	text, err := os.ReadFile(file)
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil || bad != nil:
		return "another process"
	case pid == os.Getpid():
		return "this process"
	}
	return "process " + strconv.Itoa(pid)
}

// release gives the directory back, and removes it where it is temporary. Nil does nothing.
func (d *storeDir) release() {
	if d == nil {
		return
	}
	if d.temp {
		_ = os.RemoveAll(d.path) // before the lock goes, so that nobody takes it for stale
	}
	_ = d.lock.Unlock()
}

// removeStale removes temporary directories whose makers died. One that is young may not have its lock yet.
func removeStale(in string) {
	dirs, err := filepath.Glob(filepath.Join(in, tempPattern))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		file := filepath.Join(dir, lockName)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		d := &storeDir{path: dir, temp: true, lock: flock.New(file, flock.SetFlag(os.O_RDWR))}
		if ok, err := d.lock.TryLock(); ok && err == nil {
			d.release()
		}
	}
}
