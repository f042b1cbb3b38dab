// Package procid tells one process from every other that ever had its number, and sees
// it end, whichever program started it and whatever became of the gateway that did.
//
// An ID is written down when a process is started. The next gateway asks whether
// it still lives, and watches it:
//
//	id, w, err := procid.Start(path, argv, attr) // or Look at one that another program started
//	...
//	w, err := procid.Watch(id)                   // after a restart
//	exited, ok := w.Wait(time.Minute)
//
// On Windows, where processes end with the gateway, there is only the ID.
package procid

// ID is a process. It is JSON of the records that it is kept in.
type ID struct {
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"` // when it started, in the unit of the system: a pid alone may be another's by now
	Boot  string `json:"boot,omitempty"`  // pids and start times begin anew with it
}
