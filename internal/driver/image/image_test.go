package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/image/imagetest"
)

func TestFormats(t *testing.T) {
	base := tarOf(t, dir("./"), dir("./etc/"), reg("./etc/a", "1"), sym("./bin", "usr/bin"), dir("usr"), dir("usr/bin"), reg("usr/bin/srv", "x").With(0o755))
	top := tarOf(t, reg("etc/b", "2"), reg("/bin/more", "3"))
	want := "bin->usr/bin etc/ etc/a=1 etc/b=2 usr/ usr/bin/ usr/bin/more=3 usr/bin/srv=x"
	plain := tarOf(t, reg("usr/bin/srv", "x"), reg("manifest.json", `{"name": "app"}`), reg("etc/.wh.x", ""))
	config := Config{[]string{"PATH=/bin", "A=b"}}
	nested := oci(t, func(files map[string]string, index *[]object) {
		inner := toJSON(t, object{"manifests": append(*index, object{"digest": "sha256:" + strings.Repeat("0", 64), "platform": object{"os": "unknown", "architecture": "unknown"}})})
		files["blobs/sha256/"+hexOf([]byte(inner))] = inner
		*index = []object{{"digest": "sha256:" + hexOf([]byte(inner)), "size": len(inner)}}
	}, base, top)
	linked := func() []byte { // as older versions wrote a layer that is there twice
		config := configOf(t, base, base)
		return tarOf(t, reg("a/layer.tar", string(base)), sym("b/layer.tar", "../a/layer.tar"), reg("c.json", config), reg("manifest.json", toJSON(t, []object{{"Config": "c.json", "Layers": []string{"a/layer.tar", "b/layer.tar"}}})))
	}()
	for name, tt := range map[string]struct {
		archive []byte
		want    string
		config  Config
	}{
		"saved":                        {saved(t, base, top), want, config},
		"saved and compressed":         {zip(t, saved(t, base, top)), want, config},
		"a layout":                     {oci(t, nil, base, top), want, config},
		"a layout that is compressed":  {zip(t, oci(t, nil, base, top)), want, config},
		"a layout of several systems":  {nested, want, config},
		"a layer that is a link":       {linked, "bin->usr/bin etc/ etc/a=1 usr/ usr/bin/ usr/bin/srv=x", config},
		"a root filesystem":            {plain, `etc/ etc/.wh.x= manifest.json={"name": "app"} usr/ usr/bin/ usr/bin/srv=x`, Config{}},
		"a compressed root filesystem": {zip(t, plain), `etc/ etc/.wh.x= manifest.json={"name": "app"} usr/ usr/bin/ usr/bin/srv=x`, Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			img, err := s.Get(t.Context(), place(t, tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(t, img.Dir); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !reflect.DeepEqual(img.Config, tt.config) || img.Digest != "sha256:"+hexOf(tt.archive) {
				t.Errorf("%+v", img)
			}
			alone(t, s)
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(img.Dir), "archive*")); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

func TestLayers(t *testing.T) {
	for name, tt := range map[string]struct {
		layers [][]file
		want   string
	}{
		"a file replaces a file":          {[][]file{{reg("a", "1")}, {reg("a", "2")}}, "a=2"},
		"a file replaces a directory":     {[][]file{{reg("a/b", "1")}, {reg("a", "2")}}, "a=2"},
		"a directory replaces a link":     {[][]file{{reg("x/y", "1"), sym("a", "x")}, {dir("a"), reg("a/z", "2")}}, "a/ a/z=2 x/ x/y=1"},
		"a link replaces a directory":     {[][]file{{reg("a/b", "1"), dir("c")}, {sym("a", "c"), reg("a/d", "2")}}, "a->c c/ c/d=2"},
		"a directory keeps what it has":   {[][]file{{reg("a/b", "1")}, {dir("a"), reg("a/c", "2")}}, "a/ a/b=1 a/c=2"},
		"a whiteout":                      {[][]file{{reg("a/b", "1"), reg("a/c", "2")}, {reg("a/.wh.b", "")}}, "a/ a/c=2"},
		"a whiteout of a directory":       {[][]file{{reg("a/b/c", "1"), reg("d", "2")}, {reg(".wh.a", "")}}, "d=2"},
		"a whiteout of nothing":           {[][]file{{reg("a", "1")}, {reg("b/.wh.c", ""), reg(".wh.d", "")}}, "a=1"},
		"a whiteout and a new one":        {[][]file{{reg("a/b", "1")}, {reg(".wh.a", ""), reg("a/c", "2")}}, "a/ a/c=2"},
		"a whiteout of a link":            {[][]file{{reg("a/b", "1"), sym("l", "a")}, {reg(".wh.l", "")}}, "a/ a/b=1"},
		"a whiteout behind a link":        {[][]file{{reg("a/b", "1"), sym("l", "/a")}, {reg("l/.wh.b", "")}}, "a/ l->/a"},
		"an opaque directory":             {[][]file{{reg("a/b", "1"), reg("a/d/e", "1")}, {reg("a/.wh..wh..opq", ""), reg("a/c", "2")}}, "a/ a/c=2"},
		"one that is marked at its end":   {[][]file{{reg("a/b", "1"), reg("a/d/e", "1")}, {reg("a/c", "2"), reg("a/d/f", "2"), reg("a/.wh..wh..opq", "")}}, "a/ a/c=2 a/d/ a/d/f=2"},
		"an opaque root":                  {[][]file{{reg("a/b", "1"), reg("c", "1")}, {reg("d", "2"), reg(".wh..wh..opq", "")}}, "d=2"},
		"what other storages leave":       {[][]file{{reg("a", "1"), reg(".wh..wh.plnk", ""), reg(".wh..wh.aufs", "")}}, "a=1"},
		"hard links":                      {[][]file{{reg("a", "1"), hard("b/c", "a"), hard("d", "/b/c")}, {reg("a", "2")}}, "a=2 b/ b/c=1 d=1"},
		"a hard link to the layer before": {[][]file{{reg("a", "1")}, {hard("b", "a")}}, "a=1 b=1"},
		"a hard link to itself":           {[][]file{{reg("a", "1"), hard("a", "./a")}}, "a=1"},
		"a hard link to a link":           {[][]file{{sym("a", "/x"), hard("b", "a")}}, "a->/x b->/x"},
		"a hard link behind a link":       {[][]file{{reg("a/b", "1"), sym("l", "/a"), hard("c", "l/b")}}, "a/ a/b=1 c=1 l->/a"},
		"behind an absolute link":         {[][]file{{dir("run"), sym("var/run", "/run"), reg("var/run/x", "1")}}, "run/ run/x=1 var/ var/run->/run"},
		"behind a link that leads out":    {[][]file{{sym("l", "../../../up"), reg("l/x", "1")}}, "l->../../../up up/ up/x=1"},
		"behind a link to nothing":        {[][]file{{sym("l", "/no/where"), reg("l/x", "1")}}, "l->/no/where no/ no/where/ no/where/x=1"},
		"no devices":                      {[][]file{{file{Name: "dev/null", Kind: tar.TypeChar, Text: "", Mode: 0o666}, file{Name: "dev/sda", Kind: tar.TypeBlock, Text: "", Mode: 0o666}, file{Name: "p", Kind: tar.TypeFifo, Text: "", Mode: 0o666}, reg("a", "1")}}, "a=1"},
		"without a directory of its own":  {[][]file{{reg("a/b/c/d", "1")}}, "a/ a/b/ a/b/c/ a/b/c/d=1"},
		"its root":                        {[][]file{{dir("/"), dir("."), reg(".", "x"), reg("a", "1")}}, "a=1"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			img, err := newStore(t).Get(t.Context(), place(t, saved(t, layers...)))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(t, img.Dir); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	img, err := newStore(t).Get(t.Context(), place(t, tarOf(t,
		reg("su", "").With(0o6755), reg("shut", "").With(0), reg("mine", "").With(0o700), reg("all", "").With(0o666), dir("tmp").With(0o1777), dir("closed").With(0), reg("closed/in", "1"), dir("set").With(0o2755))))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"su": "-rwxr-xr-x", "shut": "-r--r--r--", "mine": "-rwxr-xr-x", "all": "-rw-rw-rw-", "tmp": "dtrwxrwxrwx", "closed": "drwxr-xr-x", "closed/in": "-rw-r--r--", "set": "drwxr-xr-x", ".": "drwxr-xr-x",
	} {
		info, err := os.Lstat(filepath.Join(img.Dir, name))
		if err != nil || info.Mode().String() != want {
			t.Errorf("%s is %v, %v, want %s", name, info.Mode(), err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(img.Dir, "all")); err != nil || !info.ModTime().Equal(imagetest.Written) {
		t.Errorf("its time is %v, %v", info.ModTime(), err)
	}
}

func TestRefused(t *testing.T) {
	layer := tarOf(t, reg("a", "1"))
	other := "s390x"
	spoil := func(old, new string) []byte { return bytes.Replace(saved(t, layer), []byte(old), []byte(new), 1) }
	withConfig := func(config string) []byte {
		return tarOf(t, reg("l.tar", string(layer)), reg("c.json", config), reg("manifest.json", `[{"Config": "c.json", "Layers": ["l.tar"]}]`))
	}
	for name, tt := range map[string]struct {
		archive []byte
		is      error
		want    string
	}{
		"up":                        {saved(t, tarOf(t, reg("../x", "1"))), ErrUnsafe, `layer 1 of 1: "../x" in it: it must not be used: it leads out of the image`},
		"up in the middle":          {tarOf(t, reg("a/../../x", "1")), ErrUnsafe, "it leads out"},
		"up from the root":          {tarOf(t, reg("/../x", "1")), ErrUnsafe, "it leads out"},
		"a directory that is up":    {tarOf(t, dir("a/..")), ErrUnsafe, "it leads out"},
		"a hard link up":            {tarOf(t, hard("a", "../../etc/passwd")), ErrUnsafe, "it leads out"},
		"a hard link to the host":   {tarOf(t, hard("a", "/etc/passwd")), ErrFormat, "which is not there"},
		"a hard link through one":   {tarOf(t, sym("l", "/etc"), hard("a", "l/passwd")), ErrFormat, "which is not there"},
		"a hard link to a folder":   {tarOf(t, dir("d"), hard("a", "d")), ErrFormat, "hard link to a directory"},
		"a whiteout of ..":          {saved(t, tarOf(t, reg("a/x", ""), reg("a/.wh...", ""))), ErrUnsafe, "removes what is outside"},
		"a whiteout of .":           {saved(t, tarOf(t, reg("a/x", ""), reg("a/.wh..", ""))), ErrUnsafe, "removes what is outside"},
		"a whiteout of no name":     {saved(t, tarOf(t, reg("a/x", ""), reg("a/.wh.", ""))), ErrUnsafe, "removes what is outside"},
		"a loop of links":           {tarOf(t, sym("a", "b"), sym("b", "a"), reg("a/x", "1")), ErrUnsafe, "more than 40 links"},
		"a file as a directory":     {tarOf(t, reg("a", "1"), reg("a/b", "1")), ErrFormat, `"a" is not a directory`},
		"a link to nowhere":         {tarOf(t, sym("a", "")), ErrFormat, "leads nowhere"},
		"a long path":               {tarOf(t, reg(strings.Repeat("abcdefgh/", 600)+"x", "1")), ErrLimit, "longer than 4096 bytes"},
		"no archive":                {[]byte(strings.Repeat("no archive ", 100)), ErrFormat, "it is no tar file, or damaged"},
		"nothing":                   {nil, ErrFormat, "the archive is empty"},
		"zstd":                      {[]byte("\x28\xb5\x2f\xfd1234567"), ErrFormat, "compressed with zstd, which can't be read here; write it uncompressed or with gzip"},
		"damaged gzip":              {zip(t, saved(t, layer))[:200], ErrFormat, "it is damaged"},
		"cut off":                   {saved(t, layer)[:1000], ErrFormat, "damaged"},
		"a layer that was changed":  {spoil("1\x00\x00\x00\x00", "2\x00\x00\x00\x00"), ErrFormat, "layer 1 of 1: it is not an image: it is not what its digest says"},
		"a config that was changed": {spoil(`"A=b"`, `"A=c"`), ErrFormat, "its config is not what its digest says"},
		"a config that is missing":  {tarOf(t, reg("manifest.json", `[{"Config": "c.json", "Layers": ["l"]}]`)), ErrFormat, "c.json is missing in it"},
		"a layer that is missing":   {tarOf(t, reg("c.json", "{}"), reg("manifest.json", `[{"Config": "c.json", "Layers": ["l"]}]`)), ErrFormat, "l is missing in it"},
		"no layers":                 {tarOf(t, reg("c.json", "{}"), reg("manifest.json", `[{"Config": "c.json"}]`)), ErrFormat, "it has no layers"},
		"two images":                {tarOf(t, reg("c.json", "{}"), reg("manifest.json", `[{"Config": "c.json", "RepoTags": ["a:1"]}, {"Config": "c.json", "RepoTags": ["b:2"]}]`)), ErrFormat, "it has 2 images (a:1, b:2); save only the one"},
		"another machine":           {withConfig(toJSON(t, object{"architecture": other, "os": "linux"})), ErrFormat, `it is for "s390x", and this machine is`},
		"another system":            {withConfig(`{"os": "windows"}`), ErrFormat, `it is for "windows"`},
		"layers that are not named": {withConfig(`{"rootfs": {"diff_ids": ["a", "b"]}}`), ErrFormat, "names 2 layers, and it has 1"},
		"a digest that is none":     {withConfig(`{"rootfs": {"diff_ids": ["a"]}}`), ErrFormat, `the digest "a" in it is not known`},
		"a config that is none":     {withConfig(`[`), ErrFormat, "its config can't be read"},
		"a blob that was changed": {oci(t, func(files map[string]string, _ *[]object) {
			for name, text := range files {
				if strings.HasPrefix(text, "\x1f\x8b") {
					files[name] = text[:len(text)-9] + "\x00" + text[len(text)-8:]
				}
			}
		}, layer), ErrFormat, ""},
		"a blob of another size": {oci(t, func(files map[string]string, _ *[]object) {
			for name, text := range files {
				if strings.HasPrefix(text, "\x1f\x8b") {
					files[name] = text + "\x00"
				}
			}
		}, layer), ErrFormat, "bytes instead of"},
		"nothing for this machine": {oci(t, func(_ map[string]string, index *[]object) {
			(*index)[0]["platform"] = object{"os": "linux", "architecture": other}
		}, layer), ErrFormat, "it has nothing for linux/"},
		"several for this machine": {oci(t, func(_ map[string]string, index *[]object) { *index = append(*index, (*index)[0]) }, layer), ErrFormat, "it has 2 images"},
		"a digest that leads up":   {oci(t, func(_ map[string]string, index *[]object) { (*index)[0]["digest"] = "sha256:../../x" }, layer), ErrFormat, "is not known"},
		"an index of itself": {oci(t, func(files map[string]string, index *[]object) {
			for range 10 {
				inner := toJSON(t, object{"manifests": *index})
				files["blobs/sha256/"+hexOf([]byte(inner))] = inner
				*index = []object{{"digest": "sha256:" + hexOf([]byte(inner))}}
			}
		}, layer), ErrFormat, "nested too deep"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			at := place(t, tt.archive)
			img, err := s.Get(t.Context(), at)
			if err == nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "image "+at) {
				t.Errorf("got %+v, %v, want %q", img, err, tt.want)
			}
			alone(t, s)
			if got := describe(t, filepath.Dir(s.Dir)); strings.Contains(got, "x=1") {
				t.Errorf("something was written: %s", got)
			}
		})
	}
	for path, want := range map[string]string{"/no/such/image": "can't be read", t.TempDir(): "is not a file; give the archive"} {
		if _, err := newStore(t).Get(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestLayersInUnknownCompressionAreRefusedByName(t *testing.T) {
	archive := tarOf(t, reg("l.tar", "\x28\xb5\x2f\xfd1234567"), reg("c.json", "{}"), reg("manifest.json", `[{"Config": "c.json", "Layers": ["l.tar"]}]`))
	if _, err := newStore(t).Get(t.Context(), place(t, archive)); err == nil || !strings.Contains(err.Error(), "a layer is compressed with zstd") {
		t.Errorf("got %v", err)
	}
}

// bomb is a megabyte of zeros after each other, compressed.
func bomb(t *testing.T, megabytes int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Size: int64(megabytes) << 20, Mode: 0o644})
	zeros := make([]byte, 1<<20)
	for range megabytes {
		if err == nil {
			_, err = w.Write(zeros)
		}
	}
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLimits(t *testing.T) {
	var many, links []file
	for range 50 {
		many = append(many, reg("a", ""))
	}
	links = append(links, reg("a", ""))
	for range 50 {
		links = append(links, hard("b", "a"))
	}
	inLayer := tarOf(t, reg("l.tar", string(bomb(t, 20))), reg("c.json", "{}"), reg("manifest.json", `[{"Config": "c.json", "Layers": ["l.tar"]}]`))
	padded := append(tarOf(t, reg("a", "1")), make([]byte, 20<<20)...)
	limits := Limits{Bytes: 10 << 20, Files: 20, Links: 20}
	for name, tt := range map[string]struct {
		archive []byte
		limits  Limits
		want    string
	}{
		"a bomb":              {bomb(t, 20), limits, "it has more than 10.0 MiB"},
		"a bomb in a layer":   {inLayer, limits, "it has more than 10.0 MiB"},
		"a bomb after a tar":  {saved(t, padded), Limits{Bytes: 10 << 20}, "it has more than 10.0 MiB"},
		"many files":          {tarOf(t, many...), limits, "it has more than 20 files"},
		"many files of one":   {saved(t, tarOf(t, many...)), limits, "it has more than 20 files"},
		"many devices of one": {saved(t, tarOf(t, append(many[:1], slicesOf(file{Name: "n", Kind: tar.TypeChar, Text: "", Mode: 0}, 50)...)...)), limits, "it has more than 20 files"},
		"many links":          {tarOf(t, links...), Limits{Links: 20}, "it has more than 20 hard links"},
		"no time":             {saved(t, tarOf(t, reg("a", "1"))), Limits{Time: 1}, "it takes longer than 1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.Limits = tt.limits
			if _, err := s.Get(t.Context(), place(t, tt.archive)); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			alone(t, s)
		})
	}
}

func slicesOf(f file, n int) []file {
	list := make([]file, n)
	for i := range list {
		list[i] = f
	}
	return list
}

func TestTwoAtOnceAreOne(t *testing.T) {
	s := newStore(t)
	var mu sync.Mutex
	begun := 0
	s.Progress = func(line string) {
		if strings.HasPrefix(line, "unpacking image") {
			mu.Lock()
			begun++
			mu.Unlock()
		}
	}
	archive := saved(t, tarOf(t, reg("a", "1")))
	paths := []string{place(t, archive), place(t, archive)} // the same at two places
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if img, err := s.Get(context.Background(), paths[i%2]); err != nil || describe(t, img.Dir) != "a=1" {
				t.Errorf("got %+v, %v", img, err)
			}
		})
	}
	all.Wait()
	if begun != 1 {
		t.Errorf("it was unpacked %d times", begun)
	}
	alone(t, s)
}
