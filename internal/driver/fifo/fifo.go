// Package fifo is the standard input and output of a program that outlives the
// gateway: two named pipes in the folder of its instance.
//
// The program has both open for reading and writing, so it sees no end of its
// input when the gateway dies, and no broken pipe: it waits, with at most a
// pipe's worth of output. The next gateway opens them again. For that, the program itself
// must open its ends, or a process that lives as long:
//
//	fifo.Make(dir)                    // once
//	in, out, err := fifo.Program(dir) // its ends, which it inherits
//	p, err := fifo.Open(dir)          // ours, before it runs: nothing it writes is lost
//	...                               // it starts; our copies of its ends are closed
//	conn := lines.NewConn(p, ...)
//
// and after a restart Open alone, with Torn set in the options of the connection. A
// program whose output is a file has only the input: MakeInput, ProgramInput, OpenInput.
//
// Systems without named pipes in the file system have only the names.
package fifo

// Files in an instance's folder.
const (
	In  = "in"  // what the program reads
	Out = "out" // what it writes
)
