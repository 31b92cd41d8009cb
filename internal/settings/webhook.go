package settings

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// defaultMaxBody is much more than any payload that we want has, and maxMaxBody what GitHub sends at most, in MiB.
	defaultMaxBody = 5
	maxMaxBody     = 25
	// maxSecrets is how many secrets a file holds at most; more than two are only there by mistake.
	maxSecrets = 8
)

// checkWebhook finds the mistakes in how webhooks are received: nothing is taken without a secret.
func (c *Poller) checkWebhook(p *problems) {
	w, on := c.Webhook, 0
	for i, s := range c.Sources {
		key := fmt.Sprintf("sources[%d]", i)
		p.add(!s.Webhook && s.WebhookSecretFile != "", "%s.webhook_secret_file is set and webhook is not on: write webhook: true, or delete it", key)
		if !s.Webhook {
			continue
		}
		on++
		if s.WebhookSecretFile == "" {
			p.add(true, "%s.webhook is on and nothing says what its webhooks are signed with: set webhook_secret_file there, or webhook.secret_file "+
				"for all sources, to a file with the secret in it", key)
			continue
		}
		_, err := s.WebhookSecrets()
		p.add(err != nil, "%s.webhook_secret_file: %v", key, err)
	}
	p.add(on > 0 && w.Listen == "", "webhook.listen is not set and a source has webhook on: set it to an address such as 127.0.0.1:8099, which "+
		"the proxy that ends TLS sends webhooks to")
	p.add(on == 0 && (w.Listen != "" || w.SecretFile != ""), "webhook is set and no source has webhooks: write webhook: true at a source, or delete it")
	p.add(w.MaxBodyMiB < 1 || w.MaxBodyMiB > maxMaxBody, "webhook.max_body_mib is %d: it must be 1 to %d, which is what GitHub sends at most",
		w.MaxBodyMiB, maxMaxBody)
	if w.Listen != "" {
		// Unlike all other addresses this one may be reached by others: whatever comes in there is signed, or is not taken.
		err := checkAddress(w.Listen, true)
		p.add(err != nil, "webhook.listen: %v", err)
		p.add(w.Listen == c.Listen && !strings.HasSuffix(w.Listen, ":0"), "webhook.listen is %s, as is listen: the operator API must not be where webhooks come in",
			w.Listen)
	}
}

// WebhookSecrets reads the secrets that the source's webhooks may be signed with, one on each line: the old and the new one while it is
// being replaced. The error is text for the person who made the file.
func (s *Source) WebhookSecrets() ([]string, error) {
	path := s.WebhookSecretFile
	text, err := readSecret(path, "the secret of the webhook")
	if err != nil {
		return nil, err
	}
	var secrets []string
	for line := range strings.Lines(text) {
		secret := strings.TrimSpace(line)
		if strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("%s should hold one secret on a line, and has one with a control character", path)
		}
		if secret != "" {
			secrets = append(secrets, secret)
		}
	}
	switch {
	case path == "":
		return nil, errors.New("it is not set, and without a secret no webhook is taken")
	case len(secrets) == 0:
		return nil, fmt.Errorf("%s is empty, and without a secret no webhook is taken: put the one that GitHub signs with into it", path)
	case len(secrets) > maxSecrets:
		return nil, fmt.Errorf("%s has more than %d secrets: keep the one that GitHub signs with, and the one before it while it is replaced", path, maxSecrets)
	}
	return secrets, nil
}
