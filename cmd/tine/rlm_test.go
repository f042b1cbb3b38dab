package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// rlmOf reads the flags of tine rlm as a config.
func rlmOf(t *testing.T, o rlmFlags) (string, error) {
	t.Helper()
	tc := newTestCLI(t)
	if err := o.resolve(); err != nil {
		return "", err
	}
	cfg, err := tc.rlmConfig(&o)
	if err != nil {
		return "", err
	}
	return string(config.Marshal(cfg)), nil
}

func TestRLMFlags(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("${data}", 0o700); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "venv/bin/python")
	if err := os.MkdirAll(filepath.Dir(python), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho True 3.13\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		flags rlmFlags
		has   []string
	}{
		{"by itself", rlmFlags{}, []string{"builtin: rlm", "implicit: shared", dir}},
		{"files", rlmFlags{AllowRead: []string{"${data}"}}, []string{filepath.Join(dir, "${data}")}},
		{"packages", rlmFlags{Packages: []string{"numpy"}}, []string{"packages:", "numpy"}},
		{"a Python", rlmFlags{Python: "venv/bin/python"}, []string{python}},
		{"a container", rlmFlags{Image: "py", Memory: "8GiB"}, []string{"image: py", "memory: 8GiB"}},
		{"no isolation", rlmFlags{Plain: true}, []string{"driver: process"}},
		{"a price", rlmFlags{Prices: []string{"llama=0.5,2"}}, []string{"prices:", "llama:", "input: 0.5", "output: 2"}},
		{"a model", rlmFlags{Model: "llama", BaseURL: "http://127.0.0.1:1/v1", Cost: 2, Prices: []string{"llama=1,2"}}, []string{"model: llama", "cost: 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shown, err := rlmOf(t, tt.flags)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.has {
				if !strings.Contains(shown, want) {
					t.Errorf("no %q in\n%s", want, shown)
				}
			}
		})
	}
	for says, flags := range map[string]rlmFlags{
		"name it with --project":                    {Project: "nowhere"},
		"--allow-read: stat " + dir + "/nowhere":    {AllowRead: []string{"nowhere"}},
		"--names must be underscores or dots":       {Names: "dashes"},
		"--package must have names of packages":     {Packages: []string{"-e ."}},
		"write NAME=INPUT,OUTPUT":                   {Prices: []string{"llama3=1"}},
		"--price must have llama, as --max-cost":    {Model: "llama", BaseURL: "http://127.0.0.1:1/v1", Cost: 2},
		"--key-env must be the name of a variable":  {KeyEnv: "sk-ant 1"},
		"/bin/true does not run as Python":          {Python: "/bin/true"},
		"--no-isolation bounds nothing":             {Plain: true, Memory: "1GiB"},
		"a container has the packages of its image": {Docker: true, Packages: []string{"numpy"}},
	} {
		if _, err := rlmOf(t, flags); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", flags, err)
		}
	}
}

func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.example.com/v1": "api.example.com:443",
		"http://127.0.0.1:8080/":     "127.0.0.1:8080",
		"http://[::1]/v1":            "[::1]:80",
		"socks5://proxy":             "proxy:1080",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostPort(u); got != want {
			t.Errorf("%s is reached at %s", text, got)
		}
	}
}

// TestRoomsSweep ends rooms of processes that were killed, and removes old ones.
func TestRoomsSweep(t *testing.T) {
	tc := newTestCLI(t)
	tc.now = time.Now
	rooms := tc.rlmRooms(t.TempDir())
	flags := rlmFlags{Project: t.TempDir(), Plain: true}
	left := func(session, stage string, age time.Duration) string {
		f := flags
		f.Session = session
		m, err := rooms.take(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		m.close()
		m.about.Stage, m.about.Used = stage, time.Now().Add(-age)
		writeRoom(t, m.dir, m.about)
		return m.dir
	}
	kept := left("kept", roomClosed, time.Hour)
	killed := left("killed", roomOpen, time.Hour)
	old := left("old", roomClosed, roomKept+time.Hour)
	second := filepath.Join(rooms.root, briefRooms+"x")
	if err := os.Mkdir(second, 0o700); err != nil {
		t.Fatal(err)
	}
	writeRoom(t, second, roomFile{Flags: flags, Stage: roomOpen, Used: time.Now()})
	// One that is in use stays as it is.
	used, err := rooms.take(t.Context(), flags)
	if err != nil {
		t.Fatal(err)
	}
	rooms.sweep(t.Context())
	for dir, stage := range map[string]string{kept: roomClosed, killed: roomClosed, used.dir: roomOpen} {
		if about, err := readRoom(dir); err != nil || about.Stage != stage {
			t.Errorf("%s is %q, %v; want %s", about.Flags.Session, about.Stage, err, stage)
		}
	}
	for _, dir := range []string{old, second} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is there", dir)
		}
	}
	// Of two clients the second has a room that does not last.
	other, err := rooms.take(t.Context(), flags)
	if err != nil {
		t.Fatal(err)
	}
	if !other.brief || !strings.Contains(other.note, "another client has the kernel of "+flags.Project) {
		t.Errorf("the second client is told %q", other.note)
	}
	other.close()
	if _, err := os.Stat(other.dir); err == nil {
		t.Error("the folder of the second client is there")
	}
	// One that is being closed is waited for, also when it says that it is closed.
	for _, stage := range []string{roomEnding, roomClosed} {
		if err := used.say(stage); err != nil {
			t.Fatal(err)
		}
		taken := takeLater(t, rooms, flags)
		used.close()
		if used = <-taken; used == nil || used.brief {
			t.Fatal("the next client does not have the room")
		}
	}
	used.close()
}

// takeLater takes a room in the background.
func takeLater(t *testing.T, rooms *rlmRooms, flags rlmFlags) <-chan *room {
	out := make(chan *room, 1)
	go func() {
		defer close(out)
		m, err := rooms.take(t.Context(), flags)
		if err != nil {
			t.Error(err)
			return
		}
		out <- m
	}()
	return out
}

func writeRoom(t *testing.T, dir string, about roomFile) {
	t.Helper()
	m := &room{dir: dir, about: about}
	if err := m.write(); err != nil {
		t.Fatal(err)
	}
}
