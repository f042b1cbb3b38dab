package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// ensureImage fetches the image of a spec, as its config has it.
func (e *engine) ensureImage(ctx context.Context, spec driver.Spec, log *slog.Logger) error {
	name, pull := options(spec).Image, options(spec).Pull
	leave, err := e.d.turns.enter(ctx, "image "+e.host+" "+name)
	if err != nil {
		return err
	}
	defer leave()
	_, err = e.cli.ImageInspect(ctx, name)
	switch {
	case err == nil && pull != PullAlways:
		return nil
	case err != nil && !gone(err):
		return e.explain(fmt.Sprintf("look for the image %q", name), err)
	case pull == PullNever:
		return driver.Final(fmt.Errorf("the engine at %s does not have the image %q, and docker.pull is never; load it, or change docker.pull", e.host, name))
	}
	if err := e.pull(ctx, name, log); err != nil {
		return fmt.Errorf("the image %q can't be fetched: %w; check docker.image, or load the image into the engine", name, e.explain("pull", err))
	}
	return nil
}

// logEvery is how often a long pull is logged.
const logEvery = 5 * time.Second

// pull fetches an image and logs how far it is.
func (e *engine) pull(ctx context.Context, name string, log *slog.Logger) error {
	log.Info("fetching an image", "image", name)
	began := time.Now()
	res, err := e.cli.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer res.Close()
	layers := make(map[string][2]int64)
	logged := began
	for m, err := range res.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		if m.Progress != nil && m.Progress.Total > 0 {
			layers[m.ID] = [2]int64{m.Progress.Current, m.Progress.Total}
		}
		if time.Since(logged) > logEvery {
			logged = time.Now()
			var done, total int64
			for _, l := range layers {
				done, total = done+l[0], total+l[1]
			}
			log.Info("fetching an image", "image", name, "done", sizeText(done), "of", sizeText(total))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	log.Info("fetched an image", "image", name, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// streamError reads what an engine says while it works, and returns the error
// that is in it.
func streamError(r io.Reader) error {
	dec := json.NewDecoder(r)
	for {
		var m struct {
			Error string `json:"error"`
		}
		switch err := dec.Decode(&m); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case m.Error != "":
			return errors.New(m.Error)
		}
	}
}
