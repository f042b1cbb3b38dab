package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/confine"
)

// systemReads are what a gateway reads of the system besides the interpreter: programs and
// libraries, which it shows to the sandbox, and what it asks about processes.
var systemReads = []string{
	"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/proc", "/sys",
	"/dev/urandom", "/dev/random", "/dev/zero",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone",
	"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/mime.types",
	"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/python3",
}

// confine starts the helper, and takes from this process what it does not need any more,
// once: to read other files than those of the project, Python and the system, to write
// other than to its room, to make connections and to run programs.
func (h *rlmHelper) confine() error {
	if h == nil {
		return nil
	}
	if err := h.begin(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	flags := &h.room.about.Flags
	switch host := os.Getenv("DOCKER_HOST"); {
	case h.confined || flags.Unconfined:
		return h.unconfined
	case flags.Plain:
		return nil // such a kernel is started by this process, and would be confined too
	case flags.inContainer() && host != "" && !strings.HasPrefix(host, "unix://"):
		h.confined = true
		h.room.rooms.log.Warn("tine rlm is not confined, since it reaches Docker over TCP", "host", host)
		return nil
	}
	h.confined = true
	// What is written besides the state, such as the prompt of the program claude.
	temporary := filepath.Join(h.room.dir, "tmp")
	if h.unconfined = errors.Join(os.MkdirAll(temporary, 0o700), os.Setenv("TMPDIR", temporary)); h.unconfined != nil {
		return h.unconfined
	}
	rules := h.room.rules()
	can := confine.Can(rules)
	report, err := confine.Apply(rules)
	switch {
	case err != nil && can.Complete():
		h.unconfined = fmt.Errorf("confine tine rlm: %w; --no-confinement runs it without", err)
	case err != nil || !report.Complete():
		h.room.rooms.log.Warn("tine rlm is not confined as it should be", "report", report.String(), "err", err)
	}
	return h.unconfined
}

// blind reports whether this process can't look at the host any more; nil for never.
func (h *rlmHelper) blind() func() bool {
	if h == nil {
		return nil
	}
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.confined
	}
}

// rules are what tine rlm may do once its kernel runs.
func (m *room) rules() confine.Rules {
	flags := &m.about.Flags
	read := append([]string{flags.Project, m.rooms.programs()}, systemReads...)
	read = append(read, flags.AllowRead...)
	read = append(read, interpreterReads(cmp.Or(flags.Python, "python3"))...)
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if path := os.Getenv(name); path != "" {
			read = append(read, path)
		}
	}
	if m.srt != nil {
		read = slices.DeleteFunc(read, m.srt.Denied)
	}
	return confine.Rules{Read: read, Write: []string{m.dir, "/dev/null"}, Sockets: m.engine(), PairsOnly: !flags.inContainer(), Attributes: true}
}

// interpreterReads are the folders of an interpreter, which a kernel that is started again
// needs: its environment, and what is behind that.
func interpreterReads(command string) []string {
	path, err := exec.LookPath(command)
	if err != nil {
		return nil
	}
	reads := []string{prefixOf(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		reads = append(reads, prefixOf(real))
	}
	if home, err := os.UserHomeDir(); err == nil {
		// Shims of pyenv, and interpreters of uv.
		reads = append(reads, cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")), filepath.Join(home, ".local/share/uv/python"))
	}
	return reads
}

// prefixOf is the folder that has the folder of a program; that of the program where the
// other one has more than an interpreter.
func prefixOf(program string) string {
	dir := filepath.Dir(program)
	prefix := filepath.Dir(dir)
	home, _ := os.UserHomeDir()
	if filepath.Base(dir) != "bin" || prefix == "/" || prefix == home || prefix == filepath.Join(home, ".local") || strings.HasPrefix(home+"/", prefix+"/") {
		return program
	}
	return prefix
}

// engine are the sockets of Docker, where the kernel is in a container.
func (m *room) engine() []string {
	if !m.about.Flags.inContainer() {
		return nil
	}
	sockets := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, dir)
	}
	if path, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		sockets = append(sockets, path)
	}
	return sockets
}
