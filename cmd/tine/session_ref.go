package main

import (
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

const (
	sessionPrefix  = "ses_"
	snapshotPrefix = "snp_"
	// mostNamed is how many matches of a prefix are named.
	mostNamed = 5
	// sessionPage is the most that a gateway gives at once.
	sessionPage = 1000
)

var (
	wholeID   = regexp.MustCompile(`^(ses|snp)_[0-9a-f]{12}$`)
	sessionID = regexp.MustCompile(`\bses_[0-9a-f]{12}\b`)
	// sessionName matches possible names; the gateway knows whether one exists.
	sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	hexStart    = regexp.MustCompile(`^[0-9a-f]{0,12}$`)
)

// session connects to the gateway and resolves a reference to a session's id.
func (c *cli) session(ctx context.Context, ref string) (*gateway, string, error) {
	g, err := c.connect()
	if err != nil {
		return nil, "", err
	}
	id, err := findSession(ctx, g, ref)
	return g, id, err
}

// findSession resolves a reference to a session's id.
func findSession(ctx context.Context, g *gateway, ref string) (string, error) {
	ids, err := findSessions(ctx, g, []string{ref})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// findSessions resolves references to ids, each once. The gateway checks whole ids;
// prefixes are looked up among open sessions, and anything else is a name, or else
// the prefix of a closed session.
func findSessions(ctx context.Context, g *gateway, refs []string) ([]string, error) {
	var ids []string
	fits := map[string][]string{} // by prefix
	for _, ref := range refs {
		digits := strings.TrimPrefix(ref, sessionPrefix)
		if ref == sessionPrefix || ref != digits && !hexStart.MatchString(digits) {
			return nil, usagef("%q is neither the id of a session nor a prefix of one; see tine session list", ref)
		}
		if !wholeID.MatchString(ref) && digits != "" && hexStart.MatchString(digits) {
			fits[sessionPrefix+digits] = nil
		}
		ids = append(ids, sessionPrefix+digits)
	}
	if err := collect(ctx, g, fits, false); err != nil {
		return nil, err
	}
	for i, ref := range refs {
		if strings.HasPrefix(ref, sessionPrefix) || len(fits[ids[i]]) > 0 {
			continue
		}
		id, err := sessionNamed(ctx, g, ref)
		if err != nil {
			return nil, err
		}
		if id != "" {
			ids[i] = id
		}
	}
	if err := collect(ctx, g, fits, true); err != nil {
		return nil, err
	}
	for i, id := range ids {
		found, asked := fits[id]
		switch {
		case !asked && wholeID.MatchString(id):
		case len(found) == 0 && strings.HasPrefix(refs[i], sessionPrefix):
			return nil, usagef("no session begins with %q; see tine session list --closed", refs[i])
		case len(found) == 0:
			return nil, usagef("%q is neither the id of a session, nor a prefix of one, nor a name; see tine session list --closed", refs[i])
		case len(found) > 1:
			return nil, usagef("%q is a prefix of %s; give more of it", refs[i], several(found, "session"))
		default:
			ids[i] = found[0]
		}
	}
	var each []string
	for _, id := range ids {
		if !slices.Contains(each, id) {
			each = append(each, id)
		}
	}
	return each, nil
}

// sessionNamed finds the id of a durable session by its name; empty where there is none.
func sessionNamed(ctx context.Context, g *gateway, name string) (string, error) {
	if !sessionName.MatchString(name) {
		return "", nil
	}
	s, err := askFor(ctx, g, g.Session, name)
	var ae *api.Error
	switch {
	case err == nil:
		return s.ID, nil
	case errors.As(err, &ae) && ae.Status == http.StatusNotFound:
		return "", nil
	}
	return "", mendSession(err)
}

// collect finds the sessions for the prefixes of fits that have none yet.
func collect(ctx context.Context, g *gateway, fits map[string][]string, closed bool) error {
	var open []string
	for start, found := range fits {
		if len(found) == 0 {
			open = append(open, start)
		}
	}
	if len(open) == 0 {
		return nil
	}
	_, err := ask(ctx, g, func(ctx context.Context) (struct{}, error) {
		for s, err := range g.AllSessions(ctx, client.SessionQuery{Closed: closed, Limit: sessionPage}) {
			if err != nil {
				return struct{}{}, err
			}
			for _, start := range open {
				if strings.HasPrefix(s.ID, start) {
					fits[start] = append(fits[start], s.ID)
				}
			}
		}
		return struct{}{}, nil
	})
	return err
}

// several names a few of many.
func several(ids []string, noun string) string {
	named := slices.Sorted(slices.Values(ids))
	if len(named) > mostNamed {
		return count(len(ids), noun) + ", such as " + strings.Join(named[:mostNamed], ", ")
	}
	return count(len(ids), noun) + ": " + strings.Join(named, ", ")
}

// findSnapshot finds a snapshot by its name, its id, or a prefix of its id.
func findSnapshot(ctx context.Context, g *gateway, ref string) (*api.Snapshot, error) {
	if ref == "" {
		return nil, usagef("the name of a snapshot is empty; see tine session snapshots")
	}
	s, err := askFor(ctx, g, g.Snapshot, ref)
	var ae *api.Error
	if err == nil || !errors.As(err, &ae) || ae.Status != http.StatusNotFound || wholeID.MatchString(ref) {
		return s, mendSnapshot(err)
	}
	var (
		names, ids []string
		found      api.Snapshot
	)
	start := snapshotPrefix + strings.TrimPrefix(ref, snapshotPrefix)
	all, lerr := snapshots(ctx, g, client.SnapshotQuery{Auto: true}, math.MaxInt)
	if lerr != nil {
		return nil, mendSnapshot(err) // the first error is reported
	}
	for _, s := range all {
		if s.Name != "" {
			names = append(names, s.Name)
		}
		if strings.HasPrefix(s.ID, start) && start != snapshotPrefix {
			ids, found = append(ids, s.ID), s
		}
	}
	switch len(ids) {
	case 0:
		return nil, usagef("there is no snapshot %q%s; see tine session snapshots", ref, didYouMean(ref, names))
	case 1:
		return &found, nil
	}
	return nil, usagef("%q is not the name of a snapshot, but a prefix of %s; give more of it", ref, several(ids, "snapshot"))
}

// snapshotsOf reads the snapshots of one session, the newest first, at most so
// many.
func snapshotsOf(ctx context.Context, g *gateway, session string, most int) ([]api.Snapshot, error) {
	return ask(ctx, g, func(ctx context.Context) ([]api.Snapshot, error) {
		return upTo(most, g.SessionSnapshots(ctx, session))
	})
}

// snapshots reads those of a query, the newest first, at most so many.
func snapshots(ctx context.Context, g *gateway, q client.SnapshotQuery, most int) ([]api.Snapshot, error) {
	q.Limit = min(most, sessionPage)
	return ask(ctx, g, func(ctx context.Context) ([]api.Snapshot, error) { return upTo(most, g.AllSnapshots(ctx, q)) })
}

// upTo reads at most so many.
func upTo[T any](most int, from iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for v, err := range from {
		if err != nil {
			return nil, err
		}
		if all = append(all, v); len(all) == most {
			break
		}
	}
	return all, nil
}
