//go:build unix

package layout

import (
	"os"
	"strings"
	"testing"
)

func TestAllowShowsWhatAProgramNeedsAndNoMore(t *testing.T) {
	h := machine(t)
	l := plan(t, wanted(h, "/usr/bin/python3", "-m", "x"))
	l.want(t, h, map[string]string{
		"/usr/bin/python3.11": "/usr/bin/python3.11", "/bin": "-> usr/bin", "/lib64": "-> usr/lib64", "/opt/x/y": "/opt/x/y",
		"/etc/ssl/certs/c.pem": "/etc/ssl/certs/c.pem", "/etc/ssl/private/k": "masked", "/etc/ld.so.cache": "/etc/ld.so.cache",
		"/etc/localtime": "-> /usr/share/zoneinfo/UTC", "/etc/passwd": "text", "/etc/group": "text", "/etc/hosts": "text",
		"/etc/shadow": "", "/etc/machine-id": "", "/etc/ssh": "", "/etc/resolv.conf": "", "/run/systemd": "",
		"/home/me": "", "/root": "", "/srv": "", "/var/lib": "", "/boot": "", "/proc/1": "", "/dev/null": "",
		"/proc": "dir", "/dev": "dir", "/sys": "dir", "/run": "dir", "/tmp": "dir", "/var/tmp": "dir", "/var/tmp/x": "",
		"/home/user": "dir", "/workspace": "dir", "/state": "dir",
	})
	for at, mode := range map[string]uint32{"/tmp": 0o1777, "/var/tmp": 0o1777, "/home/user": 0o777} {
		if got := l.part(at).Mode; got != mode {
			t.Errorf("%s has mode %o, want %o", at, got, mode)
		}
	}
	for at, want := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
		"/etc/group":  "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
		"/etc/hosts":  "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tsandbox\n",
	} {
		if got := l.part(at).Text; got != want {
			t.Errorf("%s is %q, want %q", at, got, want)
		}
	}
}

func TestNamesAreLookedUpOnlyWithANetwork(t *testing.T) {
	h := machine(t)
	w := wanted(h, "/usr/bin/tool")
	w.Network = true
	plan(t, w).want(t, h, map[string]string{"/etc/resolv.conf": "-> ../run/systemd/resolve/stub", "/run/systemd/resolve/stub": "/run/systemd/resolve/stub"})
}

func TestHostShowsAllButWhatIsPrivate(t *testing.T) {
	h := machine(t)
	w := wanted(h, "/usr/bin/tool")
	w.Mode = Host
	plan(t, w).want(t, h, map[string]string{
		"/usr/bin/tool": "/usr/bin/tool", "/bin": "-> usr/bin", "/srv/data/a": "/srv/data/a", "/etc/machine-id": "/etc/machine-id", "/var/cache": "/var/cache", "/var/lib/dpkg/status": "/var/lib/dpkg/status",
		"/etc/shadow": "masked", "/etc/ssh/ssh_host_rsa_key": "masked", "/etc/ssl/private": "masked", "/var/lib/docker": "masked", "/var/log": "masked", "/data/homes/b": "masked",
		"/home/me": "", "/home/other": "", "/root": "", "/boot": "", "/mnt": "", "/media": "", "/lost+found": "", "/swapfile": "", "/run/systemd": "",
		"/proc": "dir", "/proc/1": "", "/tmp": "dir", "/var/tmp": "dir", "/var/tmp/x": "", "/var/run": "-> /run", "/home/user": "dir", "/workspace": "dir",
	})
}

func TestHostShowsNoSocketsOfAnOldVarRun(t *testing.T) {
	h := machine(t)
	if err := os.Remove(h.at("/var/run")); err != nil {
		t.Fatal(err)
	}
	h.add(t, "/var/run/docker.sock")
	w := wanted(h, "/usr/bin/tool")
	w.Mode = Host
	plan(t, w).want(t, h, map[string]string{"/var/run": "dir", "/var/run/docker.sock": ""})
}

func TestDirShowsAnotherRoot(t *testing.T) {
	h := machine(t, "/srv/root/usr/bin/srv=\x7fELF", "/srv/root/bin -> usr/bin", "/srv/root/etc/passwd=x", "/srv/root/etc/os-release", "/srv/root/proc/x", "/srv/root/tmp/x",
		"/srv/root/var/lib/x", "/srv/root/workspace/app", "/srv/root/lib/", "/home/me/data/f")
	w := wanted(h, "/bin/srv")
	w.Mode, w.Dir, w.Cwd, w.AllowRead = Dir, "/srv/root", "/app/here", []string{"/home/me/data"}
	l := plan(t, w)
	l.want(t, h, map[string]string{
		"/usr/bin/srv": "/srv/root/usr/bin/srv", "/bin": "-> usr/bin", "/etc/passwd": "/srv/root/etc/passwd", "/etc/group": "text", "/etc/hosts": "text", "/etc/os-release": "/srv/root/etc/os-release",
		"/proc": "dir", "/proc/x": "", "/tmp": "dir", "/tmp/x": "", "/var/tmp": "dir", "/var/lib/x": "/srv/root/var/lib/x", "/workspace/app": "/srv/root/workspace/app", "/state": "dir",
		"/usr/bin/python3": "", "/app/here": "dir", "/home/me/data/f": "/home/me/data/f", "/home/me/notes": "", "/srv": "",
	})
	w.Command = "/bin/other"
	if _, err := Plan(w); err == nil || !strings.Contains(err.Error(), "/bin/other is not in the root /srv/root") {
		t.Errorf("got %v", err)
	}
}

func TestLinksOfAnotherRootStayInIt(t *testing.T) {
	h := machine(t, "/srv/root/usr/bin/srv=\x7fELF", "/srv/root/etc -> /conf", "/srv/root/conf/x", "/srv/root/var -> ../../../home/me", "/srv/root/opt -> /home/me/.ssh")
	w := wanted(h, "/usr/bin/srv")
	w.Mode, w.Dir = Dir, "/srv/root"
	l := plan(t, w)
	l.want(t, h, map[string]string{"/etc": "-> /conf", "/conf/hosts": "text", "/conf/x": "/srv/root/conf/x", "/opt": "-> /home/me/.ssh", "/home/me/.ssh": "", "/home/me/tmp": "dir"})
	for _, p := range l.Parts {
		if p.Source != "" && !within("/srv/root", p.Source) {
			t.Errorf("%+v", p)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	h := machine(t, "/home/me/deny/s.py", "/home/me/f -> /home/me/.ssh", "/home/me/loop -> loop", "/srv/link -> /", "/home/me/dir/", "/srv/locked/")
	for name, tt := range map[string]struct {
		change func(w *Wanted)
		want   string
	}{
		"a mode that is none":       {func(w *Wanted) { w.Mode = "x" }, `there is no root "x"; use allow, host`},
		"a command that is missing": {func(w *Wanted) { w.Command = "/usr/bin/none" }, "mend the server's command"},
		"a command that is a folder": {
			func(w *Wanted) { w.Command = "/usr/bin" }, "command /usr/bin is not a file"},
		"a relative path":        {func(w *Wanted) { w.AllowRead = []string{"x"} }, `allow_read: "x" is not a whole path`},
		"a path that is missing": {func(w *Wanted) { w.AllowRead = []string{"/srv/none"} }, "allow_read: /srv/none is not there; create it"},
		"keys":                   {func(w *Wanted) { w.AllowRead = []string{"/home/me/.ssh"} }, "it holds secrets, which no sandbox sees"},
		"a key":                  {func(w *Wanted) { w.AllowRead = []string{"/home/me/.ssh/id"} }, "it is in /home/me/.ssh, which holds secrets"},
		"keys by a link":         {func(w *Wanted) { w.AllowRead = []string{"/home/me/f"} }, "it holds secrets"},
		"keys of another user":   {func(w *Wanted) { w.AllowWrite = []string{"/root/.ssh"} }, "allow_write: /root/.ssh: it holds secrets"},
		"the home of another":    {func(w *Wanted) { w.AllowRead = []string{"/home/other"} }, "it is a home; name what is needed in it"},
		"Tine's own":             {func(w *Wanted) { w.AllowRead = []string{stateDir + "/sandbox"} }, "it is in Tine's own folder"},
		"what is denied":         {func(w *Wanted) { w.AllowRead, w.DenyRead = []string{"/srv/data/a"}, []string{"/srv/data"} }, "deny_read has /srv/data; remove one of them"},
		"the whole host":         {func(w *Wanted) { w.AllowRead = []string{"/srv/link"} }, "it is the whole host; write root: host"},
		"the kernel":             {func(w *Wanted) { w.AllowRead = []string{"/proc/1"} }, "it belongs to the kernel"},
		"a loop":                 {func(w *Wanted) { w.AllowRead = []string{"/home/me/loop"} }, "more than 40 links"},
		"a script that is denied": {func(w *Wanted) {
			w.Command, w.Args, w.DenyRead = "/usr/bin/python3", []string{"/home/me/deny/s.py"}, []string{"/home/me/deny"}
		}, "the script of the command: /home/me/deny/s.py: deny_read has /home/me/deny"},
		"a command that is denied":     {func(w *Wanted) { w.DenyRead = []string{"/usr/bin/tool"} }, "command: /usr/bin/tool: deny_read has"},
		"a cwd that is missing":        {func(w *Wanted) { w.Cwd = "/srv/none" }, "cwd /srv/none can't be looked at"},
		"a cwd that is a file":         {func(w *Wanted) { w.Cwd = "/usr/bin/tool" }, "cwd /usr/bin/tool is not a directory"},
		"a root that is missing":       {func(w *Wanted) { w.Mode, w.Dir = Dir, "/srv/none" }, "root /srv/none can't be looked at"},
		"a root that is a file":        {func(w *Wanted) { w.Mode, w.Dir = Dir, "/srv/data/a" }, "is not a directory; give one"},
		"a root that is the host":      {func(w *Wanted) { w.Mode, w.Dir = Dir, "/srv/link" }, "write root: host for that"},
		"a root in Tine's folder":      {func(w *Wanted) { w.Mode, w.Dir = Dir, stateDir }, "it is in Tine's own folder"},
		"keys where it may be written": {func(w *Wanted) { w.AllowWrite = []string{"/home/me"} }, "lies in /home/me, which may be written to; name the folders beside it"},
		"what may come where it may be written": {
			func(w *Wanted) { w.AllowWrite, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/b"} }, "create it first, or remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := wanted(h, "/usr/bin/tool")
			tt.change(&w)
			if _, err := Plan(w); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
