package process

import (
	"os"
	"testing"
)

func TestCheckPipes(t *testing.T) {
	dir := t.TempDir()
	if err := CheckPipes(dir); err != nil {
		t.Error(err)
	}
	if err := CheckPipes("/proc"); err == nil {
		t.Error("proc takes named pipes")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
