// Package executor is the contract of executors: programs that do the work of a run,
// such as a coding agent's command line. Each folder below it is one kind of executor,
// and executortest has the suite that each of them passes.
//
// An Executor does not run the program. It says how to start it (Plan) and what its
// output means (Reader), and the runner does the rest: it starts the program so that it
// outlives the gateway, follows the file that it writes to, stops it, and adopts it
// after a restart. A Reader that is given the same output again says the same again,
// which is how an adopted program's state comes back.
package executor

import (
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A Job is one run as an executor gets it. All placeholders are filled in.
type Job struct {
	Run     string
	Session string
	Resume  bool // the session had a run before
	// ExecutorSession is what the executor called its conversation in an earlier run of
	// the session; empty for none.
	ExecutorSession string
	Parameters      map[string]any
	ProjectDir      string // empty for none
	Dir             string // the session's own folder, the same in all its runs
	Folder          string // the run's private folder, where the files of a Plan are
	Agent           Agent
	Config          map[string]any    // executor_config of the blueprint
	Env             map[string]string // that the blueprint gives the program
	API             string            // the URL of the executor API of the run, with its token; empty for none
	Metadata        map[string]any
}

// Agent is the resolved blueprint.
type Agent struct {
	Name         string            `json:"name"`
	Description  string            `json:"description,omitempty"`
	SystemPrompt string            `json:"system_prompt,omitempty"`
	Servers      map[string]Server `json:"mcp_servers"`
	// Result is the JSON Schema of the result; empty for none.
	Result json.RawMessage `json:"result,omitempty"`
}

// Server is how an executor reaches one MCP server: at the gateway, always.
type Server struct {
	Type    string            `json:"type"` // http
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// An Executor is one kind of program that does runs. Its methods may be called at once.
type Executor interface {
	// Name is its name in blueprints.
	Name() string
	// Check reports what is wrong with executor_config, in terms of its keys.
	Check(config map[string]any) error
	// Plan says how to start the program. An error is the user's to mend.
	Plan(job Job) (Plan, error)
	// Read makes a Reader for the output of the program of a job.
	Read(job Job) Reader
	// Secrets are values that its programs get besides those of a job, and that nobody may
	// be shown.
	Secrets() []string
}

// A Plan is how to start a program.
type Plan struct {
	Command string
	Args    []string
	Env     map[string]string // besides the few variables that every program gets
	Dir     string            // where it works
	// Stdin is its input, written to a file that it may read to the end. A persistent
	// program gets it as the first lines of a pipe that stays open.
	Stdin      []byte
	Persistent bool
	// Files are made before it starts, in the run's private folder, by their names.
	Files map[string][]byte
}

// A Reader turns what a program writes into events and a result. It is used by one
// goroutine.
type Reader interface {
	// Line reads one line of standard output, without its newline. The bytes are the
	// caller's.
	Line(line []byte) []Event
	// End is the result, once the program has ended. An error says why there is none:
	// an *api.Error of kind tool where the agent failed, infrastructure otherwise.
	End(exit Exit) (api.RunResult, error)
}

// A Turner is the Reader of a persistent program.
type Turner interface {
	Reader
	// Turn returns the result of the turn that has ended with the last line; ok is false
	// while it goes on.
	Turn() (result api.RunResult, err error, ok bool)
	// Next is the input that begins another turn, and Shutdown the one that asks the
	// program to end.
	Next(job Job) ([]byte, error)
	Shutdown() []byte
}

// A Hearer is the Reader of a program that may post events besides, to the executor API.
type Hearer interface {
	Reader
	// Hear reads one that ReadPosted takes. It was posted before the lines that are read
	// after it were printed.
	Hear(event []byte) []Event
}

// Exit is how a program has ended.
type Exit struct {
	Status int    // the exit status; -1 where it is not known
	Signal string // that killed it; empty for none
	Stderr []byte // the end of what it wrote there
	// Stdout is what a one-shot program wrote, up to a limit; Cut says that there was more.
	Stdout []byte
	Cut    bool
	Long   int // how many lines were too long to be given to the Reader
}

// An Event is something that a program told of its work.
type Event struct {
	Type string // one of the RunEvent types of the package api
	At   time.Time
	Data json.RawMessage
	// ExecutorSession is set by the event that names the program's conversation.
	ExecutorSession string
}
