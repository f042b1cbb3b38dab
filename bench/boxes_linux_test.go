package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// TestHeld holds that the memory of a sandbox is that of all its processes, each
// once.
func TestHeld(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	self, other := os.Getpid(), child.Process.Pid
	if !sameMemory(self, self) || sameMemory(self, other) {
		t.Error("a process has its own memory, and no other's")
	}
	trees, err := descendants()
	if err != nil {
		t.Fatal(err)
	}
	// Who opens files for it is below it here, and is there once all the same.
	r := boxRecord{boxProcess: boxProcess{PID: self}, Gofer: boxProcess{PID: other}}
	if got, want := r.processes(trees), []int{self, other}; !slices.Equal(got, want) && !slices.Equal(got, []int{other, self}) {
		t.Errorf("processes %v, want %v", got, want)
	}
	both, err := r.held(trees)
	if err != nil {
		t.Fatal(err)
	}
	one, err := heldBy(other)
	if err != nil || one.pss <= 0 || one.files > one.pss || both.pss <= one.pss || both.files > both.pss || both.own() <= 0 {
		t.Errorf("together %+v, of which %+v (%v)", both, one, err)
	}
	if memoryFree() <= 0 {
		t.Error("nothing is free")
	}
}
