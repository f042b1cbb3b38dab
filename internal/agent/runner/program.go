package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// The program of a run outlives the gateway. It has a private folder:
//
//	record.json     its token, its process, and the turn that it is in
//	stdin           its input: a file, which a one-shot program may read to the end
//	in              a FIFO in place of it, of a persistent program, which stays open
//	stdout, stderr  what it has written, whole
//	posted          the events that it has posted, a line each
//	order           in which order the lines of these were read
//	ready-TICKET    lets the program begin as long as it is there
//	begun           is there once the program may have run, and gets the signals of its group
//	status          its exit status, once it has ended by itself
//	...             the files of its plan
//
// The process of the record is a shell that starts the program, waits for it and
// writes the status (shim): the next gateway is not the program's parent, and would
// not learn how it has ended. The shell leads a session and process group of its own,
// which the program is in.
//
// The gateway writes the record before the process exists and adds the process
// afterwards. So a folder with a record belongs to a program that may run, and the next
// gateway finds its processes by the token.
const (
	recordName = "record.json"
	inputName  = family.Stdin
	outputName = family.Stdout
	errorName  = lines.LogName
	postedName = "posted"
	orderName  = "order"
	readyName  = "ready-" // and the ticket
	begunName  = "begun"
	statusName = "status"
)

// ownNames are the files of the folder that a plan can't bring.
var ownNames = []string{recordName, inputName, fifo.In, outputName, errorName, postedName, orderName, begunName, statusName}

// errNever says that no program was started for a run, and nothing is left of the
// attempt: it may be started.
var errNever = errors.New("no program was started for the run")

// limits bound what a program writes.
type limits struct {
	output int64 // bytes of standard output; a program that writes more is ended
	errors int64 // the same for standard error
	posted int64 // bytes of events; one that posts more is refused
	line   int   // bytes of a line that a Reader gets
	kept   int   // bytes of standard output that are in an Exit
	tail   int   // bytes of standard error that are in an Exit
	events int   // events of a run that are reported
	event  int   // bytes of the data of one
}

var defaultLimits = limits{
	output: 256 << 20, errors: 32 << 20, posted: 32 << 20, line: 4 << 20, kept: 4 << 20, tail: 8 << 10, events: 50_000, event: 1 << 20,
}

// programs are the programs of runs on this machine. Close lets go of all.
type programs struct {
	root    string // the folder of their folders
	environ []string
	limits  limits
	grace   time.Duration // how long a program is asked to end, in each way
	log     *slog.Logger
	notices *notices
	swept   func(pass) // is told what a program that was swept away had; nil for nothing
	hosting
}

// newPrograms makes the programs of a folder, and owns nothing but the watch of it.
func newPrograms(root string, environ []string, log *slog.Logger) (*programs, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find the folder of runs: %w", err)
	}
	if err := folder.Make(root); err != nil {
		return nil, err
	}
	return &programs{root: family.RealPath(root), environ: environ, limits: defaultLimits, grace: 5 * time.Second, log: log, notices: newNotices()}, nil
}

// Close ends the watch of the folder. Every program is left or stopped before.
func (h *programs) Close() { h.notices.close() }

// turn is the part of a program's work that belongs to one run: all of it, unless the
// program is persistent.
type turn struct {
	Run    string `json:"run"`
	Stdout int64  `json:"stdout,omitempty"` // where its output begins
	Stderr int64  `json:"stderr,omitempty"`
	Posted int64  `json:"posted,omitempty"`
	// Sending says that its input is being written. A gateway that dies meanwhile leaves
	// it unknown whether the program got it.
	Sending bool `json:"sending,omitempty"`
}

// record is what is known of a program.
type record struct {
	Token string `json:"token"`
	procid.ID
	// Ticket is of this start alone. A gateway that is killed in the moment of a start may
	// leave a process that has not become the shell yet and that no search finds. The next
	// gateway takes the ticket away before it starts the program again.
	Ticket     string `json:"ticket"`
	Persistent bool   `json:"persistent,omitempty"`
	Turn       turn   `json:"turn"`
	Pass       pass   `json:"pass,omitzero"`
}

// pass is what a program reaches the gateway with. It is good until the program has ended.
type pass struct {
	Session string `json:"session"`
	Run     string `json:"run"` // that the token was made for
	Token   string `json:"token"`
}

var records = folder.Records[record]{File: recordName, What: "program", Is: func(r record) bool { return r.Token != "" && r.Turn.Run != "" }}

// dir is the folder of the program that is started for a run.
func (h *programs) dir(run string) (string, error) {
	if !filepath.IsLocal(run) || filepath.Base(run) != run || strings.HasPrefix(run, ".") {
		return "", fmt.Errorf("%q is no id of a run", run)
	}
	return filepath.Join(h.root, run), nil
}

// find returns the folder and the record of the program that does a run.
func (h *programs) find(run string) (string, record, error) {
	dir, err := h.dir(run)
	if err != nil {
		return "", record{}, err
	}
	rec, err := records.Read(dir)
	if err == nil && rec.Turn.Run == run || err != nil && !errors.Is(err, os.ErrNotExist) {
		return dir, rec, err
	}
	// The run may be a later turn of a program that was started for another.
	entries, err := os.ReadDir(h.root)
	if err != nil {
		return "", record{}, fmt.Errorf("list the folders of runs: %w", err)
	}
	for _, e := range entries {
		other := filepath.Join(h.root, e.Name())
		if rec, err := records.Read(other); err == nil && rec.Turn.Run == run {
			return other, rec, nil
		}
	}
	return dir, record{}, os.ErrNotExist
}

// check finds mistakes of a plan that would look like the program's own.
func check(plan executor.Plan) error {
	if plan.Command == "" {
		return errors.New("no command is given for the executor")
	}
	if plan.Dir == "" {
		return errors.New("no folder is given for the program to work in")
	}
	if st, err := os.Stat(plan.Dir); err != nil || !st.IsDir() {
		return fmt.Errorf("the folder %q to work in does not exist; make it, or give another project_dir", plan.Dir)
	}
	if slices.ContainsFunc(append([]string{plan.Command}, plan.Args...), hasZero) {
		return errors.New("an argument of the program has a zero byte in it; leave it out")
	}
	for name, value := range plan.Env {
		if name == "" || strings.Contains(name, "=") || hasZero(name) || hasZero(value) {
			return fmt.Errorf("%q can't be a variable of the program's environment, or its value has a zero byte in it", name)
		}
	}
	for name := range plan.Files {
		if !filepath.IsLocal(name) || filepath.Base(name) != name || slices.Contains(ownNames, name) || strings.HasPrefix(name, readyName) || strings.HasSuffix(name, folder.Part) {
			return fmt.Errorf("%q can't be a file of the run's folder", name)
		}
	}
	return nil
}

func done(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func hasZero(s string) bool { return strings.ContainsRune(s, 0) }

// ending is what following a program has come to.
type ending struct {
	Result api.RunResult
	Err    error // why there is no result
	Quiet  bool  // there was no event
	// Goes says that only the turn is over and the program waits for another.
	Goes bool
}
