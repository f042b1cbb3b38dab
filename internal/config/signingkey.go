package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// leastRSA is the size in bits below which RS256 must not be used (RFC 7518).
const leastRSA = 2048

// SigningKey reads the private key with which Tine signs: PEM (PKCS #8, PKCS #1 or
// SEC 1), or a JWK, whose kid is then named in signatures. The key has its
// algorithm. Errors quote nothing of the text.
func SigningKey(text string) (*jose.JSONWebKey, error) {
	key := new(jose.JSONWebKey)
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		if key.UnmarshalJSON([]byte(text)) != nil || !key.Valid() {
			return nil, errors.New("is no JWK that can be read")
		}
	} else {
		block, rest := pem.Decode([]byte(text))
		if block != nil && block.Type == "EC PARAMETERS" { // openssl ecparam writes them before the key
			block, _ = pem.Decode(rest)
		}
		if block == nil {
			return nil, errors.New("is neither a private key in PEM nor a JWK")
		}
		var err error
		if key.Key, err = parsePrivate(block); err != nil {
			return nil, err
		}
	}
	algorithm := jose.SignatureAlgorithm("")
	switch k := key.Key.(type) {
	case *ecdsa.PrivateKey:
		algorithm = map[int]jose.SignatureAlgorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[k.Params().BitSize]
	case ed25519.PrivateKey:
		algorithm = jose.EdDSA
		if key.Algorithm == "Ed25519" { // its newer name (RFC 9864)
			key.Algorithm = string(algorithm)
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() < leastRSA {
			return nil, errors.New("is an RSA key of less than 2048 bits; make one with: openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out tine-key.pem")
		}
		algorithm = jose.RS256
		if strings.HasPrefix(key.Algorithm, "PS") || strings.HasPrefix(key.Algorithm, "RS") {
			algorithm = jose.SignatureAlgorithm(key.Algorithm) // an RSA key does not say which
		}
	default:
		return nil, errors.New("is no private key; a public or a symmetric one can't sign")
	}
	if algorithm == "" || key.Algorithm != "" && key.Algorithm != string(algorithm) {
		return nil, errors.New("is a key of a kind that signs with none of ES256, ES384, ES512, RS256, EdDSA")
	}
	key.Algorithm = string(algorithm)
	if _, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key.Key}, nil); err != nil {
		return nil, errors.New("is a key that can't sign")
	}
	return key, nil
}

// parsePrivate reads a block of PEM. Its type tells what is there instead of a key that
// can be read.
func parsePrivate(block *pem.Block) (key crypto.PrivateKey, err error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
		return nil, errors.New("is encrypted; decrypt it with: openssl pkey -in KEY -out tine-key.pem")
	}
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "OPENSSH PRIVATE KEY":
		return nil, errors.New("is a key in the format of OpenSSH; convert a copy of it with: ssh-keygen -p -m PKCS8 -f COPY")
	case "PUBLIC KEY", "RSA PUBLIC KEY":
		return nil, errors.New("is a public key; give the private one")
	case "CERTIFICATE":
		return nil, errors.New("is a certificate; give its private key")
	default:
		return nil, errors.New("is PEM, but no private key")
	}
	switch {
	case err == nil:
		return key, nil
	case strings.Contains(err.Error(), "elliptic curve"):
		return nil, errors.New("is a key on a curve that signs nothing here; make one with: openssl ecparam -name prime256v1 -genkey -noout -out tine-key.pem")
	}
	return nil, errors.New("is a private key that can't be read; it may be damaged or cut off")
}

// signingKey is a private key in a config.
func signingKey() Value[string] {
	v := Secret(`"${file:tine-key.pem}"`).As("private key in PEM, or a JWK").Then(func(o Object, key string, dst *string) {
		_, err := SigningKey(*dst)
		if err == nil {
			return
		}
		n := o.Get(key)
		what, mend, has := strings.Cut(err.Error(), "; ")
		switch {
		case n.From == "" && has:
			o.Wrong(key, n, "%v", err)
		case n.From == "":
			o.Wrong(key, n, "%v; write it like ${file:tine-key.pem}", err)
		default:
			// It may be half written, or of a rotation that went wrong: as with a
			// file that is missing, this server is off, and the others go on.
			if !has {
				mend = "mend what the placeholder names"
			}
			n.Missing, *dst = true, ""
			o.d.unfit = append(o.d.unfit, missing{absent{"the private key " + what, mend}, n.Pos, join(o.Path, key)})
		}
	})
	v.Secrets = func(text string, _ Place, l SecretList) {
		l.Add(text)
		l.lines(text)
	}
	return v
}
