// Command tellserver is the teller over stdio. It may end at once, with a last
// word on standard error.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tine-mcp/tine/e2e/teller"
)

func main() {
	modern := flag.Bool("modern", false, "speak the stateless era only")
	die := flag.String("die", "", "end at once and print this variable")
	token := flag.String("token", "", "a secret on the command line")
	flag.Parse()
	if *die != "" {
		fmt.Fprintf(os.Stderr, "tellserver: can't log in with %s and %s\n", os.Getenv(*die), *token)
		os.Exit(1)
	}
	var mu sync.Mutex
	s := &teller.Server{Modern: *modern, Stderr: func(text string) { fmt.Fprintln(os.Stderr, text) }}
	in := bufio.NewReader(os.Stdin)
	var pending sync.WaitGroup
	defer pending.Wait()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "tellserver:", err)
			}
			return
		}
		if len(line) == 1 {
			continue // the end of a line that another gateway left torn
		}
		// Each by itself, so that a slow one holds up no other.
		pending.Go(func() {
			answer, _ := s.Answer(context.Background(), line, nil)
			if answer == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			_, _ = os.Stdout.Write(answer)
		})
	}
}
