package main

import (
	"errors"
	"os/exec"
	"strings"
)

// openBrowser shows a web page in the person's browser, if there is one, without
// waiting for it. The caller has checked that the address is http or https.
func openBrowser(goos string, getenv func(string) string, url string) error {
	commands := browserCommands(goos, getenv, url)
	if len(commands) == 0 {
		return errors.New("there is no screen here to open one on")
	}
	var first error
	for _, args := range commands {
		cmd := exec.Command(args[0], args[1:]...) // without our streams: a browser chatters
		err := cmd.Start()
		if err == nil {
			return cmd.Process.Release() // it stays when this program ends
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// browserCommands lists what to try, the first that starts wins. BROWSER is a
// list of commands with colons between them, each of which has the address
// where %s stands in it, or else at its end.
func browserCommands(goos string, getenv func(string) string, url string) [][]string {
	var all [][]string
	separator := ":"
	if goos == "windows" {
		separator = ";" // colons are in its paths
	}
	for command := range strings.SplitSeq(getenv("BROWSER"), separator) {
		args := strings.Fields(command)
		if len(args) == 0 {
			continue
		}
		given := false
		for i, a := range args[1:] {
			if strings.Contains(a, "%s") {
				args[i+1], given = strings.ReplaceAll(a, "%s", url), true
			}
		}
		if !given {
			args = append(args, url)
		}
		all = append(all, args)
	}
	switch {
	case goos == "windows":
		all = append(all, []string{"rundll32", "url.dll,FileProtocolHandler", url})
	case goos == "darwin":
		all = append(all, []string{"open", url})
	case getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != "":
		// Without a screen xdg-open would start a browser of text, on the terminal
		// that this program talks on.
		all = append(all, []string{"xdg-open", url})
	}
	return all
}
