package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"

	"github.com/tine-mcp/tine/internal/workspace"
)

// directory resolves a path that is to be listed.
func (s *server) directory(asked string) (place, []workspace.Info, error) {
	p, err := s.find(asked)
	if err != nil {
		return place{}, nil, err
	}
	list, err := s.tree.ReadDir(p.name)
	if err != nil {
		return place{}, nil, s.fail(err, "scandir", p.name)
	}
	return p, list, nil
}

func (s *server) listDirectory(_ context.Context, a *args) (*mcp.CallToolResult, error) {
	asked := a.text("path")
	if a.err != nil {
		return nil, a.err
	}
	_, list, err := s.directory(asked)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = tag(e) + " " + decode([]byte(e.Name))
	}
	return text(strings.Join(s.bounded(lines), "\n")), nil
}

func tag(e workspace.Info) string {
	if e.Mode.IsDir() {
		return "[DIR]"
	}
	return "[FILE]"
}

// bounded cuts a list that is longer than a call may return, and says so.
func (s *server) bounded(lines []string) []string {
	left := s.maxRead
	for i, l := range lines {
		if left -= int64(len(l)) + 1; left < 0 && i > 0 {
			return append(lines[:i:i], fmt.Sprintf("(and %d more: the whole list has more than the %d bytes that one call returns)", len(lines)-i, s.maxRead))
		}
	}
	return lines
}

func (s *server) listSizes(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, by := a.text("path"), "name"
	if a.read("sortBy", "name or size", &by); by != "name" && by != "size" {
		a.fail(errors.New("sortBy must be name or size"))
	}
	if a.err != nil {
		return nil, a.err
	}
	p, list, err := s.directory(asked)
	if err != nil {
		return nil, err
	}
	var total int64
	dirs := 0
	for i, e := range list {
		if e.Mode&fs.ModeSymlink != 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// A link is listed with the size of what it leads to, if that is inside.
			to, err := s.tree.Stat(path.Join(p.name, e.Name))
			if err != nil {
				to.Size = 0
			}
			list[i].Size = to.Size
		}
		if e.Mode.IsDir() {
			list[i].Size = 0
			dirs++
		}
		list[i].Name = decode([]byte(e.Name))
		total += list[i].Size
	}
	if by == "size" {
		slices.SortStableFunc(list, func(x, y workspace.Info) int { return cmp.Compare(y.Size, x.Size) })
	} else {
		// By the letters, whatever their case, as the reference server does.
		c := collate.New(language.Und)
		slices.SortStableFunc(list, func(x, y workspace.Info) int { return c.CompareString(x.Name, y.Name) })
	}
	lines := make([]string, len(list))
	for i, e := range list {
		size := ""
		if !e.Mode.IsDir() {
			size = fmt.Sprintf("%10s", formatSize(e.Size))
		}
		pad := max(0, 30-len(utf16.Encode([]rune(e.Name))))
		lines[i] = tag(e) + " " + e.Name + strings.Repeat(" ", pad) + " " + size
	}
	lines = append(s.bounded(lines),
		"",
		fmt.Sprintf("Total: %d files, %d directories", len(list)-dirs, dirs),
		"Combined size: "+formatSize(total))
	return text(strings.Join(lines, "\n")), nil
}

func formatSize(n int64) string {
	if n <= 0 {
		return "0 B"
	}
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := min(int(math.Log(float64(n))/math.Log(1024)), len(units)-1)
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	// In whole numbers, so that halves are rounded up.
	unit := int64(1) << (10 * i)
	hundredths := (n%unit*200 + unit) / (2 * unit)
	return fmt.Sprintf("%d.%02d %s", n/unit+hundredths/100, hundredths%100, units[i])
}

func (s *server) fileInfo(_ context.Context, a *args) (*mcp.CallToolResult, error) {
	asked := a.text("path")
	if a.err != nil {
		return nil, a.err
	}
	p, err := s.find(asked)
	if err != nil {
		return nil, err
	}
	if !p.found {
		return nil, s.fail(fs.ErrNotExist, "stat", p.name)
	}
	i := p.info
	return text(fmt.Sprintf("size: %d\ncreated: %s\nmodified: %s\naccessed: %s\nisDirectory: %v\nisFile: %v\npermissions: %03o",
		i.Size, date(i.Created), date(i.Modified), date(i.Accessed), i.Mode.IsDir(), i.Mode.IsRegular(), i.Mode.Perm())), nil
}

// date writes a time as JavaScript does, always in the same zone.
func date(t time.Time) string {
	return t.UTC().Format("Mon Jan 02 2006 15:04:05 GMT-0700") + " (Coordinated Universal Time)"
}

func (s *server) allowed(context.Context, *args) (*mcp.CallToolResult, error) {
	return text("Allowed directories:\n" + s.tree.Root()), nil
}
