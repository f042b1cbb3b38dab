package packages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Inside is where a program finds its packages: each folder under a name that is
// made of what is in it. So they are at the same place for every gateway that has the
// same packages, wherever its own folder is, and one can go on from what a program of
// another had in memory.
const Inside = "/tine-packages"

// notes are files in which installers say how, when and where from they installed
// something. They differ where the packages are the same.
var notes = []string{"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}

// name names what was installed by its content, and by the interpreter that it is
// for. It comes before anything in the folder is made to fit its place inside.
func (f *fetching) name(interpreter ...string) (sum string, err error) {
	f.step.Store("name")
	all := sha256.New()
	_ = json.NewEncoder(all).Encode([]any{f.w.Kind, runtime.GOOS, runtime.GOARCH, interpreter})
	err = filepath.WalkDir(f.tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.tree, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && d.Name() == "__pycache__":
			return fs.SkipDir
		case noted(filepath.ToSlash(rel)):
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			text, err := os.Readlink(path)
			fmt.Fprintf(all, "link %q %q\n", rel, strings.ReplaceAll(text, f.tree, ""))
			return err
		case d.Type().IsRegular():
			return f.sumUp(all, rel, path, d)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("name what was installed: %w", err)
	}
	return hex.EncodeToString(all.Sum(nil)[:16]), nil
}

// noted reports whether a path of a folder is of a file that says nothing of what
// the packages do.
func noted(rel string) bool {
	dir, name := filepath.Split(rel)
	switch {
	case strings.HasSuffix(dir, ".dist-info/"):
		return slices.Contains(notes, name)
	case dir == "" || rel == "node_modules/.package-lock.json":
		return true // lists of what is installed, which is looked at itself
	case rel == venvDir+"/pyvenv.cfg" || dir == venvDir+"/":
		return true
	}
	return interpreterLink.MatchString(rel) || rel == venvDir+"/lib64"
}

// interpreterLink are links to the interpreter, which is named beside.
var interpreterLink = regexp.MustCompile(`^` + venvDir + `/bin/python[0-9.]*$`)

// sumUp adds one file. Scripts that installers made name the folder that they were
// made in, in a way that depends on how long its name is; what they run is in the
// packages.
func (f *fetching) sumUp(all io.Writer, rel, path string, d fs.DirEntry) error {
	st, err := d.Info()
	if err != nil {
		return err
	}
	fmt.Fprintf(all, "file %q %t ", rel, st.Mode().Perm()&0o111 != 0)
	one := sha256.New()
	if st.Size() <= maxScript && filepath.Dir(rel) == venvBin(venvDir) {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(f.tree)) {
			one.Write(b)
		}
	} else {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(one, in)
		if in.Close(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(all, "%x\n", one.Sum(nil))
	return err
}

// maxScript bounds a script whose paths are made to fit.
const maxScript = 1 << 20

// inside is where a folder is for its program. One that an earlier version fetched
// is where it is outside, as its scripts say.
func (r *record) inside() string {
	if r.Sum == "" {
		return r.dir
	}
	return filepath.Join(Inside, r.Sum)
}

// seen is where a path outside is for a program of the record.
func (s *Store) seen(r *record, path string) string {
	switch {
	case r.Sum == "":
		return path
	case within(r.dir, path):
		return r.inside() + strings.TrimPrefix(path, r.dir)
	}
	return s.seenPython(path)
}

// seenPython is where an interpreter is for a program, or something of it: one that
// uv downloaded has a name that says what it is.
func (s *Store) seenPython(path string) string {
	own := filepath.Join(s.dir, pythonDir)
	if within(own, path) {
		return filepath.Join(Inside, pythonDir) + strings.TrimPrefix(path, own)
	}
	return path
}

// moves are the folders that a program sees elsewhere than where they are, by where
// it sees them.
func (s *Store) moves(r *record) map[string]string {
	if r.Sum == "" {
		return nil
	}
	moves := map[string]string{r.inside(): r.dir}
	if own := filepath.Join(s.dir, pythonDir); slices.ContainsFunc(append([]string{r.Interpreter}, r.Reads...), func(at string) bool { return within(own, at) }) {
		moves[filepath.Join(Inside, pythonDir)] = own
	}
	return moves
}
