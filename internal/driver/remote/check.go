package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// Check looks that the orchestrator of a server answers and lets us in. It makes
// nothing.
func Check(ctx context.Context, spec driver.Spec) driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, driver.CheckTime)
	defer cancel()
	d := New(Options{})
	defer d.Close()
	f := driver.Finding{Name: "server " + spec.Server, Status: driver.FoundOK}
	if err := d.check(ctx, spec); err != nil {
		f.Status, f.Mend = driver.FoundMissing, "see whether it runs and servers."+spec.Server+".remote.url is right"
		if turnedAway(err) {
			f.Mend = "mend servers." + spec.Server + ".headers or auth"
		}
		// The finding has a name and a mend of its own.
		text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), fmt.Sprintf("server %q: ", spec.Server))
		f.Detail = strings.TrimSuffix(text, "; "+f.Mend)
		return f
	}
	f.Detail = "its orchestrator answers"
	if len(spec.Header) > 0 || spec.Authorize != nil {
		f.Detail += " and takes the credentials"
	}
	f.Detail += ", at " + config.RedactURL(options(spec).URL)
	return f
}

func (d *Driver) check(ctx context.Context, spec driver.Spec) error {
	a, err := accessOf(spec)
	if err != nil {
		return err
	}
	o, release, err := d.open(&a)
	if err != nil {
		return err
	}
	defer release()
	if err := o.check(ctx); err != nil {
		var f *fault
		if errors.As(err, &f) && f.locked() {
			return fmt.Errorf("server %q: the orchestrator does not let us in: %w; mend servers.%s.headers or auth", spec.Server, err, spec.Server)
		}
		return fmt.Errorf("server %q: the orchestrator does not answer as it should: %w", spec.Server, err)
	}
	return nil
}

// turnedAway reports whether the credentials are not right. An orchestrator with tools
// says so in the words of its transport.
func turnedAway(err error) bool {
	var (
		f *fault
		e *api.Error
	)
	if errors.As(err, &f) && f.locked() || errors.As(err, &e) && e.Kind == api.KindRefused {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "401 Unauthorized") || strings.Contains(text, "403 Forbidden")
}
