package model

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// keys is where the key of a call comes from.
type keys struct {
	from    func(ctx context.Context) (string, error)
	environ func(name string) string
	env     string // the variable; empty for none
	login   bool   // where there is none, the user is logged in
}

// usual takes the variable that is usual at the provider's own endpoint.
func (k *keys) usual(o Options, env string) {
	if k.env == "" && o.BaseURL == "" {
		k.env = env
	}
}

// get returns the key, or nothing if there is none and none is needed.
func (k *keys) get(ctx context.Context, model string) (string, error) {
	if k.from != nil {
		key, err := k.from(ctx)
		if err != nil {
			return "", keyFailure(ctx, model, err)
		}
		return checked(model, key)
	}
	if k.env == "" {
		return "", nil
	}
	key, err := checked(model, k.environ(k.env))
	if err == nil && key == "" {
		err = &api.Error{Kind: api.KindRefused, Final: true, Message: fmt.Sprintf(
			"model %q: there is no key; set the environment variable %s", model, k.env)}
	}
	return key, err
}

// none reports whether calls are made without a key.
func (k *keys) none() bool { return k.from == nil && k.env == "" }

// mend is what to do if the endpoint refuses the key.
func (k *keys) mend() string {
	switch {
	case k.from != nil:
		return "check the credential that is set for it"
	case k.none() && k.login:
		return "run claude and log in, or name a variable with a key in key_env"
	case k.none():
		return "name the variable with its key in key_env (--key-env of tine rlm)"
	}
	return "check the key in the environment variable " + k.env
}

func keyFailure(ctx context.Context, model string, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("model %q: no key: %v", model, err)}
}

// checked refuses a key that no header can carry, without showing it.
func checked(model, key string) (string, error) {
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &api.Error{Kind: api.KindRefused, Final: true, Message: fmt.Sprintf(
			"model %q: the key has a space or a character that is not ASCII; set it again", model)}
	}
	return key, nil
}
