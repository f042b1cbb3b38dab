//go:build linux || darwin

package runner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// hosting is what hosts of this system share.
type hosting struct{ census family.Census }

// shim is the shell script that runs a program: $1 is the folder, $2 the ticket, $3 is set
// for a persistent program, and the rest is the program.
//
//   - Nothing begins where the ticket is gone, also when the folder is another's by now.
//   - The signals that ask to end reach the whole group. The program gets them, and the
//     shell waits for it: a handler is not inherited, as an ignored signal would be. Before
//     the program has begun the shell would take such a signal for itself.
//   - The shell's own remarks, such as "Terminated", are no words of the program. A
//     redirection without the subshell would hold for the shell, too, while it waits.
//   - The first input of a persistent program is fed by a process of its own, so that it is
//     fed once, whatever becomes of the gateway. The file is gone when it is fed.
//   - What the program makes is not writable for others, however the gateway was started.
//   - The status is one write, and is read when the shell is gone: without its newline it is
//     none. A rename would take another process, as long as the shell itself.
//   - cat and rm are the system's: PATH is the program's.
const shim = `umask g-w,o-w
exec 3>&2 2>/dev/null 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
trap : HUP INT QUIT TERM USR1 USR2
d=$1 ticket=$2 feed=$3; shift 3
[ -e "$d/ready-$ticket" ] || exit 1
if [ -n "$feed" ]; then { command -p cat "$d/stdin" >"$d/in" && command -p rm "$d/stdin"; } 3>&- >/dev/null & fi
(echo $$ >"$d/begun" && exec "$@" 2>&3 3>&-)
s=$?
echo "$s" >"$d/status"
`

// program is one that was started or adopted. tend is its only goroutine.
type program struct {
	h     *programs
	dir   string
	id    procid.ID // of the shell
	kin   family.Family
	watch procid.Watcher // nil where it had ended before it was adopted
	posts *posts

	ended  chan struct{} // closed when nothing of it runs any more
	tended chan struct{} // closed when tend has returned
	exit   executor.Exit // of the program, once it has ended: status and signal
	endErr error         // what could not be ended

	mu     sync.Mutex
	rec    record
	reaped bool // its pid may be another's
	killed bool // by us

	feed  sync.Mutex
	input *os.File // of a persistent one, once it is needed
	given int      // bytes of the input of a later turn; zero for the first

	at place // for the goroutine that follows
}

// start starts the program of a run. It has begun to run when start returns.
func (h *programs) start(run string, with pass, plan executor.Plan) (_ *program, err error) {
	if err := check(plan); err != nil {
		return nil, err
	}
	dir, err := h.dir(run)
	if err != nil {
		return nil, err
	}
	rec := record{Token: rand.Text(), Ticket: rand.Text(), Persistent: plan.Persistent, Turn: turn{Run: run}, Pass: with}
	env := family.NewEnvironment(h.environ, plan.Env, plan.Dir, rec.Token)
	path, err := lookup(plan.Command, plan.Dir, env.Get("PATH"))
	if err != nil {
		return nil, err
	}
	if err := folder.New(dir); err != nil {
		return nil, fmt.Errorf("make the folder of the run: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, folder.Remove(dir, recordName))
		}
	}()
	// Before anything runs, so that a gateway that is killed now finds it.
	if err := records.Write(dir, rec); err != nil {
		return nil, err
	}
	for name, data := range plan.Files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write a file of the run: %w", err)
		}
	}
	id, watch, err := h.launch(dir, rec.Ticket, path, plan, env)
	if err == nil {
		rec.ID = id
		if err = records.Write(dir, rec); err != nil {
			syscall.Kill(-id.PID, syscall.SIGKILL)
			syscall.Wait4(id.PID, nil, 0, nil)
			watch.Close()
		}
	}
	if err != nil {
		if id.PID != 0 {
			err = errors.Join(err, h.census.End(h.family(dir, rec)))
		}
		return nil, err
	}
	return h.tended(dir, rec, watch), nil
}

// launch starts the shell that runs a program on the files of a folder.
func (h *programs) launch(dir, ticket, path string, plan executor.Plan, env *family.Environment) (procid.ID, procid.Watcher, error) {
	if err := os.WriteFile(filepath.Join(dir, readyName+ticket), nil, 0o600); err != nil {
		return procid.ID{}, nil, fmt.Errorf("write a file of the run: %w", err)
	}
	stdin := filepath.Join(dir, inputName)
	if err := os.WriteFile(stdin, plan.Stdin, 0o600); err != nil {
		return procid.ID{}, nil, fmt.Errorf("write the input of the run: %w", err)
	}
	var in *os.File
	var err error
	feed := ""
	if plan.Persistent {
		feed = "feed"
		if err := fifo.MakeInput(dir); err != nil {
			return procid.ID{}, nil, err
		}
		in, err = fifo.ProgramInput(dir)
	} else {
		in, err = os.Open(stdin)
	}
	if err != nil {
		return procid.ID{}, nil, fmt.Errorf("open the input of the run: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(dir, outputName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return procid.ID{}, nil, fmt.Errorf("open the output of the run: %w", err)
	}
	defer out.Close()
	errs, err := os.OpenFile(filepath.Join(dir, errorName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return procid.ID{}, nil, fmt.Errorf("open the output of the run: %w", err)
	}
	defer errs.Close()
	argv := append([]string{"sh", "-c", shim, "sh", dir, ticket, feed, path}, plan.Args...)
	closeOnExec()
	id, watch, err := procid.Start("/bin/sh", argv, &syscall.ProcAttr{
		Dir: plan.Dir, Env: env.List(), Files: []uintptr{in.Fd(), out.Fd(), errs.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	switch {
	case errors.Is(err, syscall.E2BIG):
		err = errors.New("its arguments are too long for the system (128 KiB each on Linux); give the program less, or as input")
	case err != nil:
		err = fmt.Errorf("start %q: %w", path, err)
	}
	return id, watch, err
}

func (h *programs) family(dir string, rec record) family.Family {
	return family.Family{Token: rec.Token, Dir: family.RealPath(dir)}
}

// lookup finds a program as a shell in its folder would.
func lookup(command, dir, path string) (string, error) {
	try := func(at string) error {
		st, err := os.Stat(at)
		if err == nil && st.IsDir() {
			err = syscall.EISDIR
		}
		if err == nil {
			err = unix.Access(at, unix.X_OK)
		}
		return err
	}
	if strings.Contains(command, "/") {
		at := command
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		if err := try(at); err != nil {
			return "", fmt.Errorf("the executor's program %q can't be run: %w", at, err)
		}
		return at, nil
	}
	for _, folder := range filepath.SplitList(path) {
		if at := filepath.Join(folder, command); filepath.IsAbs(folder) && try(at) == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("the executor's program %q is not on PATH; install it, or give its full path", command)
}
