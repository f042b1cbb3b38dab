package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"
)

// beside is the program as a command that is run beside the server.
func beside(how string, args []string) {
	switch how {
	case "report": // what it is given
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			panic(err)
		}
		cwd, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		fmt.Printf("args %q\nenv %q\ncwd %q\nin %q\n", args, os.Getenv("BESIDE"), cwd, in)
		fmt.Fprint(os.Stderr, "an error\n")
		os.Exit(7)
	case "spill":
		n, _ := strconv.ParseInt(args[0], 10, 64)
		io.CopyN(os.Stdout, endless{}, n)
	case "hold": // the mark is among the arguments
		signal.Ignore(stopSignal)
		time.Sleep(time.Hour)
	case "family": // never ends by itself, with children in its group and out of it
		signal.Ignore(stopSignal)
		for _, how := range []string{"child", "detached"} {
			cmd := exec.Command(os.Args[0], "beside", "hold", args[0])
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			detach(cmd, how)
			if err := cmd.Start(); err != nil {
				panic(err)
			}
		}
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "leave": // exits and leaves a child with its output open
		cmd := exec.Command(os.Args[0], "beside", "hold", args[0])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Println("left")
	case "die":
		p, err := os.FindProcess(os.Getpid())
		if err != nil {
			panic(err)
		}
		p.Kill()
		time.Sleep(time.Hour)
	}
}

// running counts the processes that have a text among their arguments.
func running(text string) string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err.Error()
	}
	n := 0
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(text)) {
			n++
		}
	}
	return strconv.Itoa(n)
}
