package blueprint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// A Document is a blueprint of the API, as it came.
type Document struct {
	Name  string
	Owner string // the principal that has added it
	// Operator says that a principal with that role has written the body.
	Operator bool
	Body     json.RawMessage
	Changed  time.Time
}

// Documents keeps the blueprints of the API. Its methods may be called at once.
type Documents interface {
	// Blueprints returns all of them, in the order of their names.
	Blueprints(ctx context.Context) ([]Document, error)
	Blueprint(ctx context.Context, name string) (d Document, ok bool, err error)
	// ChangeBlueprint shows change the document of a name, nil where there is none, and
	// keeps what change returns; nil removes it. No other change comes between. An error of
	// change is returned as it is, and nothing is changed.
	ChangeBlueprint(ctx context.Context, name string, change func(*Document) (*Document, error)) error
}

// mostDocuments bounds the blueprints of the API.
const mostDocuments = 10_000

// Errors of a Store.
var (
	ErrUnknown = errors.New("there is no such agent")
	ErrFile    = errors.New("the agent is a file")
	ErrFull    = errors.New("there are too many agents")
)

// unknownError is an ErrUnknown that names the agent.
type unknownError string

func (e unknownError) Error() string { return string(e) }

func (e unknownError) Is(target error) bool { return target == ErrUnknown }

// A Store finds blueprints: those in folders, and those of the API. A file wins over a
// document of the same name. Nothing is kept between two calls, so that an edit counts at
// once. Its methods may be called at once.
type Store struct {
	folders   func() Folders
	documents Documents // nil for none, and nothing is put
}

// NewStore makes a Store of the folders that a function names at each call.
func NewStore(folders func() Folders, documents Documents) *Store {
	return &Store{folders: folders, documents: documents}
}

// Get reads a blueprint with its capabilities. The error is ErrUnknown, a *config.Error
// with the place of each mistake, or that of the state.
func (s *Store) Get(ctx context.Context, name string) (Blueprint, error) {
	var r report
	folders := s.folders()
	if b, ok := folders.read(name, &r); ok {
		return b, r.failed()
	}
	d, ok, err := s.document(ctx, name)
	switch {
	case err != nil:
		return Blueprint{}, err
	case !ok:
		return Blueprint{}, s.unknown(ctx, name)
	}
	return s.parse(d, folders, &r)
}

// parse reads a document with its capabilities.
func (s *Store) parse(d Document, folders Folders, r *report) (Blueprint, error) {
	b, err := Parse(d.Name, d.Body)
	if err != nil {
		return Blueprint{Name: d.Name}, err
	}
	b.Operator = d.Operator
	folders.mix(&b, r)
	return b, r.failed()
}

// failed is err with the problems in the order of the file.
func (r *report) failed() error {
	r.problems = sortProblems(r.problems)
	return r.err()
}

func (s *Store) document(ctx context.Context, name string) (Document, bool, error) {
	if s.documents == nil {
		return Document{}, false, nil
	}
	return s.documents.Blueprint(ctx, name)
}

// Document returns a document of the API. The error is ErrFile where a file has the name,
// ErrUnknown, or that of the state.
func (s *Store) Document(ctx context.Context, name string) (Document, error) {
	if src, ok := find(s.folders(), "agent", name, new(report)); ok {
		return Document{}, fmt.Errorf("%w: %q is %s; read the file", ErrFile, name, src.path)
	}
	d, ok, err := s.document(ctx, name)
	if err == nil && !ok {
		err = s.unknown(ctx, name)
	}
	return d, err
}

// unknown names the nearest agent.
func (s *Store) unknown(ctx context.Context, name string) error {
	var names []string
	list, err := s.List(ctx)
	for _, l := range list {
		names = append(names, l.Name)
	}
	hint := ""
	if g := config.Nearest(name, names); g != "" && err == nil {
		hint = fmt.Sprintf(" (did you mean %q?)", g)
	}
	return unknownError(fmt.Sprintf("there is no agent %q%s", config.Clip(name), hint))
}

// Listed is a blueprint in a list, and what is wrong with it.
type Listed struct {
	Blueprint
	Err   error
	Owner string // of one of the API
}

// List reads all blueprints, in the order of their names. One that can't be used is in
// the list with the reason.
func (s *Store) List(ctx context.Context) ([]Listed, error) {
	folders := s.folders()
	names, err := folders.Names()
	if err != nil {
		return nil, fmt.Errorf("read the folders of agents: %w", err)
	}
	var all []Listed
	for _, name := range names {
		var r report
		if b, ok := folders.read(name, &r); ok {
			all = append(all, Listed{Blueprint: b, Err: r.failed()})
		}
	}
	if s.documents == nil {
		return all, nil
	}
	documents, err := s.documents.Blueprints(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if slices.Contains(names, d.Name) {
			continue
		}
		var r report
		b, err := s.parse(d, folders, &r)
		all = append(all, Listed{Blueprint: b, Err: err, Owner: d.Owner})
	}
	slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// A Checker looks at a blueprint that is to be kept, and at what there is of its name by
// now; nil for nothing. An error refuses it.
type Checker func(b Blueprint, was *Document) error

// Put keeps a document of the API, once it is right and check lets it. The owner of one that
// is there stays. The error is ErrFile where a file has the name, a *config.Error, or that
// of check.
func (s *Store) Put(ctx context.Context, d Document, check Checker) (Blueprint, error) {
	if !config.AgentName(d.Name) {
		return Blueprint{}, &InvalidError{Code: CodeBlueprint, Message: fmt.Sprintf("%q can't name an agent; use 1 to 64 letters, digits, dashes and underscores", config.Clip(d.Name))}
	}
	folders := s.folders()
	if src, ok := find(folders, "agent", d.Name, new(report)); ok {
		return Blueprint{}, fmt.Errorf("%w: %q is %s; change the file, or choose another name", ErrFile, d.Name, src.path)
	}
	var r report
	b, err := s.parse(d, folders, &r)
	if err != nil {
		return Blueprint{}, err
	}
	list, err := s.documents.Blueprints(ctx)
	if err != nil {
		return Blueprint{}, err
	}
	return b, s.documents.ChangeBlueprint(ctx, d.Name, func(was *Document) (*Document, error) {
		if err := check(b, was); err != nil {
			return nil, err
		}
		if was != nil {
			d.Owner = was.Owner
		} else if len(list) >= mostDocuments {
			return nil, fmt.Errorf("%w: at most %d; delete one", ErrFull, mostDocuments)
		}
		return &d, nil
	})
}

// Delete forgets a document of the API, if check lets it. The error is ErrFile for a file,
// ErrUnknown, or that of check.
func (s *Store) Delete(ctx context.Context, name string, check func(was Document) error) error {
	err := s.documents.ChangeBlueprint(ctx, name, func(was *Document) (*Document, error) {
		if was == nil {
			return nil, ErrUnknown
		}
		return nil, check(*was)
	})
	if !errors.Is(err, ErrUnknown) {
		return err
	}
	if src, ok := find(s.folders(), "agent", name, new(report)); ok {
		return fmt.Errorf("%w: %q is %s; remove the file", ErrFile, name, src.path)
	}
	return s.unknown(ctx, name)
}
