package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// withTokens does something with the tokens of the gateway that a URL names, of the
// one that runs on the state folder, or else of the state folder itself. A gateway
// that merely listens at the default address is not meant: its tokens are in
// another folder.
func (c *cli) withTokens(ctx context.Context, do func(context.Context, tokens) error) error {
	named := c.flags.url != "" || c.getenv("TINE_URL") != ""
	running := false
	if !named {
		file, err := c.runningGateway()
		if err != nil {
			return err
		}
		running = file != nil
	}
	if named || running {
		g, err := c.connect()
		if err != nil {
			return err
		}
		_, err = ask(ctx, g, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx, g) })
		if named || !errors.Is(err, client.ErrNoGateway) {
			return err
		}
		// It died and left its file behind, if the lock is free.
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	all, err := openTokens(ctx, state, c.stateFlag(state), c.now)
	if err != nil {
		return err
	}
	c.say("no gateway runs on %s; the folder is used directly, without the tokens of a config", state)
	err = do(ctx, all)
	return errors.Join(err, all.close())
}

type tokenStore interface {
	store.Tokens
	store.Closer
}

// folderTokens are the tokens of a state folder that no gateway owns.
type folderTokens struct {
	db     tokenStore // nil for a folder that no gateway has used
	unlock func()
	path   string
	flag   string // that names the folder in commands
	now    func() time.Time
}

func openTokens(ctx context.Context, state, flag string, now func() time.Time) (*folderTokens, error) {
	unlock, err := store.LockForCommand(ctx, state)
	if err != nil {
		return nil, inUse(err, "it is a gateway that can't be reached: wait until it has started, name its address with --url, or stop it")
	}
	t := &folderTokens{unlock: unlock, path: databaseOf(state), flag: flag, now: now}
	if _, err := os.Stat(t.path); errors.Is(err, fs.ErrNotExist) {
		return t, nil // it is made for the first token
	}
	if err := t.open(ctx); err != nil {
		unlock()
		return nil, err
	}
	return t, nil
}

func (t *folderTokens) open(ctx context.Context) error {
	if t.db != nil {
		return nil
	}
	db, _, err := openDatabase(ctx, filepath.Dir(t.path), t.flag)
	if err != nil {
		return err
	}
	t.db = db
	return nil
}

func (t *folderTokens) close() error {
	defer t.unlock()
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}

func (t *folderTokens) Tokens(ctx context.Context) (*api.TokenList, error) {
	list := &api.TokenList{}
	if t.db == nil {
		return list, nil
	}
	kept, err := t.db.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		list.Tokens = append(list.Tokens, shownToken(k))
	}
	list.Lost, err = t.db.TokensLost(ctx)
	return list, err
}

func shownToken(t store.Token) api.Token {
	role := t.Role
	if role == "" {
		role = api.RoleUser
	}
	return api.Token{Name: t.Name, Role: role, Created: t.Created, Expires: t.Expires, Unconfirmed: t.Unconfirmed}
}

func (t *folderTokens) NewToken(ctx context.Context, n api.NewToken) (*api.CreatedToken, error) {
	if !identity.ValidName(n.Name) {
		return nil, usagef("name %q is not one that a token may have: 1 to 64 letters, digits, dots, dashes, underscores and @", n.Name)
	}
	if n.Expires.Year() > identity.LastYear {
		return nil, usagef("a token can't expire after the year %d; leave --expires out for never", identity.LastYear)
	}
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	secret := identity.NewToken()
	made := store.Token{Name: n.Name, Hash: identity.HashToken(secret), Role: n.Role, Created: t.now(), Expires: n.Expires}
	err := t.db.ChangeToken(ctx, n.Name, func(kept *store.Token) (*store.Token, error) {
		if kept != nil {
			return nil, usagef("there is a token %q already; replace it with `tine token rotate %[1]s`, revoke it, or choose another name", n.Name)
		}
		return &made, nil
	})
	if err != nil {
		return nil, err
	}
	return &api.CreatedToken{Token: shownToken(made), Secret: secret}, nil
}

func (t *folderTokens) ConfirmToken(ctx context.Context, name string) error {
	return t.change(ctx, name, func(kept *store.Token) (*store.Token, error) {
		kept.Unconfirmed = false
		return kept, nil
	})
}

func (t *folderTokens) ConfirmLost(ctx context.Context) error {
	if t.db == nil {
		return nil
	}
	return t.db.ConfirmLost(ctx)
}

func (t *folderTokens) RotateToken(ctx context.Context, name string) (*api.CreatedToken, error) {
	out := api.CreatedToken{Secret: identity.NewToken()}
	err := t.change(ctx, name, func(kept *store.Token) (*store.Token, error) {
		if !kept.Expires.IsZero() && !t.now().Before(kept.Expires) {
			return nil, usagef("token %q has expired; revoke it and make a new one with the same name, which keeps its sessions", name)
		}
		kept.Hash, kept.Created, kept.Unconfirmed = identity.HashToken(out.Secret), t.now(), false
		out.Token = shownToken(*kept)
		return kept, nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// noFolderToken is the error for a name that no token has.
func noFolderToken(name string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: fmt.Sprintf("there is no token %q", name)}
}

func (t *folderTokens) RevokeToken(ctx context.Context, name string) error {
	return t.change(ctx, name, func(*store.Token) (*store.Token, error) { return nil, nil })
}

// change changes a token that there is.
func (t *folderTokens) change(ctx context.Context, name string, change func(*store.Token) (*store.Token, error)) error {
	if t.db == nil {
		return noFolderToken(name)
	}
	return t.db.ChangeToken(ctx, name, func(kept *store.Token) (*store.Token, error) {
		if kept == nil {
			return nil, noFolderToken(name)
		}
		return change(kept)
	})
}
