package api

// ExecRequest is the body of POST /v1/sessions/{id}/exec: a command to run beside a server
// of the session, where the server runs.
type ExecRequest struct {
	Server string   `json:"server"`
	Argv   []string `json:"argv"` // the program and its arguments; no shell is involved
	// Stdin is what the command reads, and Stdin64 the same in base64 where it is not
	// UTF-8. Without both its input is empty.
	Stdin   string `json:"stdin,omitempty"`
	Stdin64 []byte `json:"stdin64,omitempty"`
	// Cwd is a folder as the server sees it; default the server's own.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the environment that the server has.
	Env map[string]string `json:"env,omitempty"`
	// User is who the command runs as, a name or UID, with an optional :GID; default the
	// server's own. Sandboxes take numbers, and no root.
	User string `json:"user,omitempty"`
	// Timeout is how long the command may take, such as 90s; default 5m, at most 24h. It is
	// killed then, with all that it started.
	Timeout string `json:"timeout,omitempty"`
	// MaxOutput is how many bytes it may write; default 64 MiB. It is killed when it
	// writes more.
	MaxOutput int64 `json:"max_output,omitempty"`
}

// ExecEvent is one line of the answer: a piece of what the command wrote, or at last how
// it ended. A stream without the last line broke off.
type ExecEvent struct {
	Stdout   string `json:"stdout,omitempty"`
	Stdout64 []byte `json:"stdout64,omitempty"` // a piece that is not UTF-8
	Stderr   string `json:"stderr,omitempty"`
	Stderr64 []byte `json:"stderr64,omitempty"`

	// One of these is in the last line.
	Exit    *int   `json:"exit,omitempty"`    // the command's status
	Signal  string `json:"signal,omitempty"`  // or the signal that ended it, such as KILL
	Timeout bool   `json:"timeout,omitempty"` // or that it was killed because its time was over
	Error   *Error `json:"error,omitempty"`   // or why it did not run to its end
	// ID is that of the command in the journal; empty where it is not kept.
	ID string `json:"id,omitempty"`
}

// Last reports whether the event is how the command ended.
func (e *ExecEvent) Last() bool {
	return e.Exit != nil || e.Signal != "" || e.Timeout || e.Error != nil
}
