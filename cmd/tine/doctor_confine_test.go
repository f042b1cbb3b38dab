package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/confine"
	"github.com/tine-mcp/tine/internal/driver"
)

func TestDoctorConfine(t *testing.T) {
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	got, code := doctor(t, tc)
	if ch := got["confine"]; !strings.Contains(ch.Detail, "tine rlm") || ch.Status == driver.FoundBroken || code != 0 {
		t.Errorf("exit %d, %+v", code, ch)
	}
	if can := confine.Can(confine.Rules{PairsOnly: true, Attributes: true}); can.Complete() != (got["confine"].Status == driver.FoundOK) {
		t.Errorf("%+v, where %s", got["confine"], can)
	}

	if runtime.GOOS != "linux" {
		return // the rest is of Linux
	}
	for _, tt := range []struct {
		name   string
		can    confine.Report
		status string
		detail string
	}{
		{"all", confine.Report{ABI: 9, Files: true, Calls: true}, driver.FoundOK, "tine rlm can be confined, by Landlock ABI 9 and a filter of system calls"},
		{"an older kernel", confine.Report{ABI: 2, Files: true, Calls: true, Missing: []string{"a", "b"}}, driver.FoundOK,
			"tine rlm can be confined, by Landlock ABI 2 and a filter of system calls; not refused: a, b"},
		{"no Landlock", confine.Report{Calls: true, Missing: []string{"access to files (switched off)"}}, driver.FoundWarn,
			"tine rlm can be confined in part, by a filter of system calls; not refused: access to files (switched off)"},
		{"Landlock alone", confine.Report{ABI: 4, Files: true, Missing: []string{"system calls"}}, driver.FoundWarn,
			"tine rlm can be confined in part, by Landlock ABI 4; not refused: system calls"},
		{"nothing", confine.Report{Missing: []string{"access to files", "system calls"}}, driver.FoundWarn,
			"tine rlm can't be confined; not refused: access to files, system calls"},
	} {
		ch := checkConfine(tt.can)
		if ch.Status != tt.status || ch.Detail != tt.detail || (ch.Mend == "") != (tt.status == driver.FoundOK) {
			t.Errorf("%s: %+v", tt.name, ch)
		}
	}
}
