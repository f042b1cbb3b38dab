package gateway

import "github.com/tine-mcp/tine/api"

func (g *Gateway) listTokens(a *ask, _ none) (api.TokenList, error) {
	return g.services.Tokens.List(a.ctx())
}

func (g *Gateway) newToken(a *ask, in api.NewToken) (api.CreatedToken, error) {
	return g.services.Tokens.New(a.ctx(), a.who, in)
}

func (g *Gateway) confirmToken(a *ask, _ none) (api.Token, error) {
	return g.services.Tokens.Confirm(a.ctx(), a.who, a.args["token"])
}

func (g *Gateway) confirmLost(a *ask, _ none) (api.TokenList, error) {
	return g.services.Tokens.ConfirmLost(a.ctx(), a.who)
}

func (g *Gateway) rotateToken(a *ask, _ none) (api.CreatedToken, error) {
	return g.services.Tokens.Rotate(a.ctx(), a.who, a.args["token"])
}

func (g *Gateway) revokeToken(a *ask, _ none) (api.Token, error) {
	return g.services.Tokens.Revoke(a.ctx(), a.who, a.args["token"])
}
