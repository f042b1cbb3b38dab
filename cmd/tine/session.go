package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

const sessionIDs = `ID is the id of a session or a unique prefix of it; ses_ is optional. A prefix
matches open sessions first, then closed ones. ID can also be the name of a session
of /mcp?session=NAME, or default for your session at /mcp. A prefix of an open
session's id takes precedence over a name.`

func newSessionCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Open, fork, rewind and close sessions",
		Long: `A session has its own workspace and its own instance of every server whose scope
is session; it shares the other servers with other sessions. A fork is a new
session that starts with the state of another session and is independent of it
from then on. A snapshot stores the state of a session. A session can be rewound
to a snapshot, and new sessions can be opened from one.

` + sessionIDs,
		Example: `  tine session open --label run=7
  tine call --session 3f9a memory__read_graph
  tine session fork 3f9a --count 3
  tine session snapshot 3f9a --name base
  tine session open --from base --count 100
  tine session tree
  tine session close --all --label run=7`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		newSessionOpenCmd(c),
		newSessionListCmd(c),
		newSessionShowCmd(c),
		newSessionForkCmd(c),
		newSessionSnapshotCmd(c),
		newSessionSnapshotsCmd(c),
		newSessionRewindCmd(c),
		newSessionExecCmd(c),
		newSessionCpCmd(c),
		newSessionDiffCmd(c),
		newSessionTokenCmd(c),
		newSessionAnnotateCmd(c),
		newSessionCloseCmd(c),
		newSessionTreeCmd(c),
		newSessionExportCmd(c),
		newSessionImportCmd(c),
	)
	return cmd
}

// labelFlag adds --label, which may be given several times.
func labelFlag(cmd *cobra.Command, labels *[]string, help string) {
	cmd.Flags().StringArrayVar(labels, "label", nil, help)
	if err := cmd.RegisterFlagCompletionFunc("label", cobra.NoFileCompletions); err != nil {
		panic(err) // the flag was just added
	}
}

// parseLabels reads the values of --label. The gateway checks keys and values.
func parseLabels(given []string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		switch {
		case !ok || key == "":
			return nil, usagef("--label wants KEY=VALUE, got %q", text)
		case !utf8.ValidString(text):
			return nil, usagef("--label %q is not UTF-8 text", text)
		}
		if _, twice := labels[key]; twice {
			return nil, usagef("--label %s is given twice", key)
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[key] = value
	}
	return labels, nil
}

// labelText is labels in one line, always in the same order.
func labelText(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

// spanFlag reads a flag that is a length of time, for the gateway: empty where it
// was not given, 0s for none.
func spanFlag(name, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	d, err := parseSpan(text)
	if err != nil || d < 0 {
		return "", usagef("--%s wants a length of time such as 90s, 30m, 2h or 7d, or 0 for none, got %q", name, text)
	}
	return d.String(), nil
}

// spanFlags reads several.
func spanFlags(flags map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		text, err := spanFlag(name, *flags[name])
		if err != nil {
			return err
		}
		*flags[name] = text
	}
	return nil
}

// mendSession adds the kind of failure to an error about a session, and what can be
// done.
func mendSession(err error) error { return mended(err, "tine session list --closed") }

// mendSnapshot does the same for a snapshot.
func mendSnapshot(err error) error { return mended(err, "tine session snapshots") }

func mended(err error, list string) error {
	var ae *api.Error
	switch {
	case !errors.As(err, &ae):
		return err
	case ae.Status == http.StatusNotFound && ae.Kind == api.KindInvalid && strings.Contains(ae.Message, fs.ErrNotExist.Error()):
		return err // the session is there, and not its file
	case ae.Status == http.StatusNotFound && ae.Kind == api.KindInvalid:
		return fmt.Errorf("%w; see %s", err, list)
	case ae.Status == http.StatusGone && (ae.Kind == api.KindInvalid || ae.Kind == api.KindLost && ae.Server == ""): // it was closed, or ended by itself
		id := sessionID.FindString(ae.Message)
		return fmt.Errorf("%w; `tine session open` opens another, `%s` still shows its calls", err, strings.TrimSpace("tine session export "+id))
	}
	return withKind(err)
}

// withKind adds the kind of failure to an error, unless the request was wrong or lacks
// a token.
func withKind(err error) error {
	var ae *api.Error
	switch {
	case !errors.As(err, &ae) || ae.Kind == "" || ae.Kind == api.KindInvalid || ae.Status == http.StatusUnauthorized:
		return err
	case ae.Retryable && ae.RetryAfter > 0:
		return fmt.Errorf("%w (%s; try again in %s)", err, ae.Kind, time.Duration(ae.RetryAfter)*time.Second)
	case ae.Retryable:
		return fmt.Errorf("%w (%s; another try can help)", err, ae.Kind)
	}
	return fmt.Errorf("%w (%s)", err, ae.Kind)
}

// sizeText is a number of bytes in three digits or so.
func sizeText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size /= 1 << 10; size < 1000 {
			break
		}
	}
	if size < 10 {
		return fmt.Sprintf("%.1f %s", size, unit)
	}
	return fmt.Sprintf("%.0f %s", size, unit)
}
