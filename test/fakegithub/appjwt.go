package fakegithub

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const maxJWTLife = 10 * time.Minute

func unauthorized(message string) error {
	return &problem{status: http.StatusUnauthorized, message: message}
}

// authenticateApp follows "Generating a JSON Web Token (JWT) for a GitHub App": RS256 by the app's key, iss the id or the client id of the
// app, iat in the past, exp in the future and no more than ten minutes away. The messages are GitHub's own, by which people search.
func (c *call) authenticateApp() error {
	_, text, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	undecodable := unauthorized("A JSON web token could not be decoded")
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}), jwt.WithoutClaimsValidation(), jwt.WithJSONNumber())
	if _, _, err := parser.ParseUnverified(strings.TrimSpace(text), claims); err != nil {
		return undecodable
	}
	issuer, hasIssuer := numberOrText(claims["iss"])
	if !hasIssuer {
		return unauthorized("Missing 'issuer' claim ('iss') in assertion")
	}
	var found *app
	for _, a := range c.s.apps {
		if issuer == strconv.FormatInt(a.ID, 10) || issuer == a.ClientID {
			found = a
		}
	}
	if found == nil {
		return &problem{status: http.StatusNotFound, message: "Integration not found"}
	}
	if _, err := parser.Parse(strings.TrimSpace(text), func(*jwt.Token) (any, error) { return found.key, nil }); err != nil {
		return undecodable
	}
	if err := c.checkTimes(claims); err != nil {
		return err
	}
	c.app = found
	return nil
}

func (c *call) checkTimes(claims jwt.MapClaims) error {
	now := c.s.cfg.Now()
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil || !expires.After(now) {
		return unauthorized("'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	}
	if expires.Sub(now) > maxJWTLife {
		return unauthorized("'Expiration time' claim ('exp') is too far in the future")
	}
	issued, err := claims.GetIssuedAt()
	if err != nil || issued == nil || issued.After(now) {
		return unauthorized("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	}
	return nil
}

func numberOrText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, v != ""
	case interface{ String() string }: // a json.Number
		return v.String(), true
	}
	return "", false
}
