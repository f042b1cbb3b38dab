package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
)

// program is the binary and what it says of itself.
type program struct {
	data     []byte
	arch     string // as Go names it
	revision string // empty where it was built outside version control
}

// readProgram reads a binary that can run in an image with nothing beside it.
func readProgram(path string) (program, error) {
	if path == "" {
		return program{}, errors.New("no binary is named; give one with -binary")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return program{}, fmt.Errorf("%s is no program for linux: %w; build it with GOOS=linux", path, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return program{}, fmt.Errorf("%s is dynamically linked and the image has no libraries; build it with CGO_ENABLED=0", path)
		}
	}
	prog := program{data: data}
	switch f.Machine {
	case elf.EM_X86_64:
		prog.arch = "amd64"
	case elf.EM_AARCH64:
		prog.arch = "arm64"
	default:
		return program{}, fmt.Errorf("%s is for %v; images are made for amd64 and arm64", path, f.Machine)
	}
	if info, err := buildinfo.Read(bytes.NewReader(data)); err == nil {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				prog.revision = s.Value
			}
		}
	}
	return prog, nil
}
