// Command image writes a container image as a tar archive that docker load,
// podman load and every tool that reads OCI layouts understand. It needs no
// container engine and no registry: the image is one layer with the static
// binary, the certificate authorities of the building machine, a config to start
// with and the folders the gateway writes to. It has no shell and does not run as
// root. The same input gives the same image, byte for byte.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	binary := flag.String("binary", "", "static tine binary for linux; tine-sandbox lies beside it")
	tag := flag.String("tag", "tine:dev", "name and tag of the image; the tag is its version")
	also := flag.String("also", "tine:dev", "second name for it, that files of this tree can use; empty for none")
	out := flag.String("o", "tine-image.tar", "file to write")
	flag.Parse()
	arch, err := write(*binary, *tag, *also, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %s for linux/%s; load it with: docker load -i %s\n", *out, *tag, arch, *out)
}

// write makes the archive and returns the architecture it is for.
func write(binary, tag, also, out string) (arch string, err error) {
	prog, err := readProgram(binary)
	if err != nil {
		return "", err
	}
	sandbox, err := readProgram(filepath.Join(filepath.Dir(binary), "tine-sandbox"))
	if err != nil {
		return "", err
	}
	if sandbox.arch != prog.arch {
		return "", fmt.Errorf("tine is for %s and the tine-sandbox beside it for %s; build both for one", prog.arch, sandbox.arch)
	}
	roots, err := authorities()
	if err != nil {
		return "", err
	}
	l, err := packLayer(prog.data, sandbox.data, roots)
	if err != nil {
		return "", fmt.Errorf("pack the layer: %w", err)
	}
	tags := []string{tag}
	if also != "" && also != tag {
		tags = append(tags, also)
	}
	_, version, _ := strings.Cut(tag, ":")
	archive, err := assemble(l, imageConfig(prog, version, l), tags)
	if err != nil {
		return "", fmt.Errorf("assemble the archive: %w", err)
	}
	tmp := out + ".tmp"
	if err := os.WriteFile(tmp, archive, 0o644); err != nil {
		return "", err
	}
	return prog.arch, os.Rename(tmp, out)
}
