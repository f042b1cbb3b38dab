package docker

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	containertypes "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// commit makes the root of a container an image of the holding.
func (m *making) commit(ctx context.Context, container string) error {
	labels := m.d.labels(m.spec, roleState, m.key)
	labels[labelTemplate] = ""
	if err := m.commitAs(ctx, container, labels, nil); err != nil {
		return err
	}
	res, err := m.e.cli.ImageInspect(ctx, m.Image)
	if err != nil {
		return m.e.explain("look at the new image", err)
	}
	if base, err := m.e.cli.ImageInspect(ctx, m.Base); err == nil {
		m.size += max(res.Size-base.Size, 0)
	}
	if len(res.RootFS.Layers) >= m.d.opts.MaxLayers {
		return m.flatten(ctx, res, labels)
	}
	return nil
}

// commitAs commits a container with labels and further changes under a new tag.
func (m *making) commitAs(ctx context.Context, container string, labels map[string]string, changes []string) error {
	tag := m.d.newTag()
	m.d.claim(tag)
	m.Image = tag
	changes = append(changes, labelChanges(labels)...)
	o := client.ContainerCommitOptions{Reference: tag, Changes: changes, Config: &containertypes.Config{}} // Podman wants one
	if _, err := m.e.cli.ContainerCommit(ctx, container, o); err != nil {
		return m.e.explain("commit the container", err)
	}
	return nil
}

// labelChanges are our labels as changes to an image. Others are on the container
// already.
func labelChanges(labels map[string]string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(k, "tine.") {
			all = append(all, "LABEL "+quote(k)+"="+quote(labels[k]))
		}
	}
	return all
}

// quote is a word as image instructions have it.
func quote(s string) string {
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\n", " ")
	return `"` + r.Replace(s) + `"`
}

// flatten makes one layer of an image, for engines take only so many: each fork
// of a fork has one more.
func (m *making) flatten(ctx context.Context, image client.ImageInspectResult, labels map[string]string) error {
	deep := m.Image
	id, remove, err := m.e.helper(ctx, m.spec, deep, nil)
	if err != nil {
		return err
	}
	defer remove()
	out, err := m.e.cli.ContainerExport(ctx, id, client.ContainerExportOptions{})
	if err != nil {
		return m.e.explain("read the container", err)
	}
	defer out.Close()
	changes := append(runConfig(image), labelChanges(labels)...)
	tag := m.d.newTag()
	m.d.claim(tag)
	m.Image = tag
	err = m.e.importImage(ctx, out, tag, changes)
	remove()
	if dropErr := m.e.removeTag(ctx, deep); err == nil && dropErr != nil {
		err = m.e.explain("remove an image", dropErr)
	}
	m.d.disclaim(deep)
	return err
}

// runConfig is what an image says about how to run it, as changes to another.
func runConfig(image client.ImageInspectResult) []string {
	c := image.Config
	if c == nil {
		return nil
	}
	var all []string
	list := func(name string, words []string) {
		if b, err := json.Marshal(append([]string{}, words...)); err == nil {
			all = append(all, name+" "+string(b))
		}
	}
	for _, env := range c.Env {
		if name, value, ok := strings.Cut(env, "="); ok {
			all = append(all, "ENV "+name+"="+quote(value))
		}
	}
	for _, port := range slices.Sorted(maps.Keys(c.ExposedPorts)) {
		all = append(all, "EXPOSE "+port)
	}
	if c.User != "" {
		all = append(all, "USER "+c.User)
	}
	if c.WorkingDir != "" {
		all = append(all, "WORKDIR "+c.WorkingDir)
	}
	if c.StopSignal != "" {
		all = append(all, "STOPSIGNAL "+c.StopSignal)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		if !strings.HasPrefix(k, "tine.") {
			all = append(all, "LABEL "+quote(k)+"="+quote(c.Labels[k]))
		}
	}
	if len(c.Volumes) > 0 {
		list("VOLUME", slices.Sorted(maps.Keys(c.Volumes)))
	}
	// Also where there are none: a container for copying has its own.
	list("ENTRYPOINT", c.Entrypoint)
	list("CMD", c.Cmd)
	return all
}
