package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeys    = 32   // of one issuer; a token without a kid is tried with each
	minRSABits = 2048 // shorter keys are not safe
)

// keySet is the keys of an issuer at one time. It is never changed.
type keySet struct {
	keys    []jose.JSONWebKey
	prints  []string // which keys these are, sorted
	fetched time.Time
	// change counts the sets that differed from the one before, dropped those that
	// lacked a key of it. Decisions made with one set hold as long as these stay.
	change  uint64
	dropped uint64
}

// parseKeys keeps the keys that can check signatures and ignores the others, since
// issuers publish keys for encryption and of new kinds in the same set.
func parseKeys(data []byte) (*keySet, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("the key set is not JSON: %w", err)
	}
	set := &keySet{}
	for _, raw := range doc.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !usable(&key) {
			continue
		}
		sum, err := key.Thumbprint(crypto.SHA256)
		if err != nil {
			continue
		}
		if len(set.keys) == maxKeys {
			break
		}
		set.keys = append(set.keys, key)
		set.prints = append(set.prints, key.KeyID+" "+string(sum))
	}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("none of the %d keys it publishes can check a signature", len(doc.Keys))
	}
	slices.Sort(set.prints)
	return set, nil
}

func usable(key *jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return key.Valid()
	}
	return false // symmetric and private keys above all
}

// follow makes set the one that comes after old.
func (set *keySet) follow(old *keySet, now time.Time) {
	set.fetched = now
	if old == nil {
		set.change = 1
		return
	}
	set.change, set.dropped = old.change, old.dropped
	if !slices.Equal(set.prints, old.prints) {
		set.change++
	}
	for _, p := range old.prints {
		if _, found := slices.BinarySearch(set.prints, p); !found {
			set.dropped++
			return
		}
	}
}

// verify returns the payload of a token that one of the keys signed. known is
// false when there is no key of the token's kid at all.
func (set *keySet) verify(token *jose.JSONWebSignature) (payload []byte, signed, known bool) {
	header := token.Signatures[0].Header
	for i := range set.keys {
		key := &set.keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID {
			continue
		}
		known = true
		if _, edwards := key.Key.(ed25519.PublicKey); key.Algorithm != "" && key.Algorithm != header.Algorithm && !edwards {
			continue // only the algorithm of Ed25519 has two names
		}
		if payload, err := token.Verify(key.Key); err == nil {
			return payload, true, true
		}
	}
	return nil, false, known
}
