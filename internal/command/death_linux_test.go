package command

import (
	"os"
	"os/exec"
	"testing"
)

func TestProgramDiesWithItsWorker(t *testing.T) {
	tr := newTrace(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := exec.Command(self, "-test.run=^$")
	w.Env = append(os.Environ(), asWorker+"="+tr.path)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, tr.started, "the program")
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.Wait()
	await(t, tr.gone, "the death of the program")
}
