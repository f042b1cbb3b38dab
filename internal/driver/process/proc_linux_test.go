package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := func(state, threads, vsize, envEnd string) string {
		f := make([]string, 50)
		for i := range f {
			f[i] = "7"
		}
		f[0], f[2], f[17], f[19], f[20], f[48] = state, "42", threads, "123456789012345", vsize, envEnd
		return strings.Join(f, " ")
	}
	for name, test := range map[string]struct {
		stat string
		want identity
		bad  bool
	}{
		"plain":             {"1 (sh) " + rest("S", "1", "1000", "99") + "\n", identity{start: 123456789012345, pgrp: 42}, false},
		"name like a trap":  {"1 (a) R 1 (b)) " + rest("R", "3", "1000", "99"), identity{start: 123456789012345, pgrp: 42}, false},
		"dead":              {"1 (sh) " + rest("Z", "1", "0", "0"), identity{start: 123456789012345, pgrp: 42, dead: true}, false},
		"first thread dead": {"1 (sh) " + rest("Z", "4", "1000", "99"), identity{start: 123456789012345, pgrp: 42}, false},
		"in an exec":        {"1 (sh) " + rest("R", "1", "1000", "0"), identity{start: 123456789012345, pgrp: 42, young: true}, false},
		"of the kernel":     {"2 (kthreadd) " + rest("S", "1", "0", "0"), identity{start: 123456789012345, pgrp: 42}, false},
		"short":             {"1 (sh) S 1 2", identity{}, true},
		"empty":             {"", identity{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(test.stat))
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestIdentify(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || me.dead || me.young || me.start == 0 {
		t.Errorf("this process is %+v, %v", me, err)
	}
	if !lives(os.Getpid(), me.start) || lives(os.Getpid(), me.start+1) {
		t.Error("this process does not live")
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for { // until it is a zombie
		id, err := identify(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if id.dead {
			break
		}
	}
	cmd.Wait()
	if _, err := identify(cmd.Process.Pid); err == nil {
		t.Error("a process that was waited for is there")
	}
	if bootID() == "" {
		t.Error("no boot id")
	}
}

func TestMarkerIn(t *testing.T) {
	for env, want := range map[string]string{
		"":                                      "",
		"A=1\x00B=2\x00":                        "",
		"A=1\x00TINE_INSTANCE=x\x00":            "x",
		"TINE_INSTANCE=x:y\x00B=2":              "x y",
		"XTINE_INSTANCE=x\x00A=TINE_INSTANCE=y": "",
	} {
		if got := strings.Join(markerIn([]byte(env)), " "); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}
