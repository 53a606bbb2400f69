package certs

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

const day = 24 * time.Hour

// check returns the serving certificate, which the authorities of the content
// must vouch for at the time.
func check(t *testing.T, c content, name string, now time.Time) *x509.Certificate {
	t.Helper()
	cert, err := c.certificate()
	if err != nil {
		t.Fatal(err)
	}
	verify(t, cert.Leaf, c, name, now)
	return cert.Leaf
}

func verify(t *testing.T, cert *x509.Certificate, c content, name string, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c[keyAuthorities])
	if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
		t.Error(err)
	}
}

func authorities(t *testing.T, c content) []*x509.Certificate {
	t.Helper()
	all, err := parseCerts(c[keyAuthorities])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func renew(t *testing.T, c content, name string, now time.Time) content {
	t.Helper()
	result, err := c.renewed(name, now)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestRenewed goes through ten years in steps of a day, as a controller that is
// never restarted.
func TestRenewed(t *testing.T) {
	const name = "nodevirt-controller.nodevirt.svc"
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := renew(t, nil, name, start)
	signed, served := 1, 1
	for at := start; at.Before(start.Add(3650 * day)); at = at.Add(day) {
		next := renew(t, c, name, at)
		if next.equal(c) {
			continue
		}
		// A replica that serves with the former certificate is trusted until that
		// expires.
		verify(t, check(t, c, name, at), next, name, at)
		check(t, next, name, at.Add(29*day))
		served++
		if !authorities(t, next)[0].Equal(authorities(t, c)[0]) {
			signed++
		}
		if n := len(authorities(t, next)); n > 2 {
			t.Errorf("%s: %d authorities", at, n)
		}
		if again := renew(t, next, name, at); !again.equal(next) {
			t.Errorf("%s: renewed twice", at)
		}
		c = next
	}
	// Of 90 and 730 days two thirds each.
	if signed < 7 || signed > 8 || served < 60 || served > 70 {
		t.Errorf("%d authorities and %d certificates in ten years", signed, served)
	}
}

func TestRenewedOfOthers(t *testing.T) {
	const name = "nodevirt-controller.nodevirt.svc"
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, other := renew(t, nil, name, now), renew(t, nil, name, now)
	with := func(key string, value []byte) content {
		c := maps.Clone(good)
		c[key] = value
		return c
	}
	for what, c := range map[string]content{
		"nothing":                 {},
		"no text of PEM":          with(keyAuthorities, []byte("x")),
		"no authority":            with(keyAuthorities, nil),
		"no key":                  with(keyKey, nil),
		"a key of others":         with(keyKey, other[keyKey]),
		"an authority of others":  with(keyAuthorities, other[keyAuthorities]),
		"a certificate of others": with(keyCert, other[keyCert]),
		"a leaf as the authority": {keyAuthorities: good[keyCert], keyAuthorityKey: good[keyKey], keyCert: good[keyCert], keyKey: good[keyKey]},
		"another name":            renew(t, nil, "nodevirt-controller.elsewhere.svc", now),
		"from the future":         renew(t, nil, name, now.Add(time.Hour)),
	} {
		made := renew(t, c, name, now)
		if made.equal(c) {
			t.Errorf("%s: is taken for good", what)
		}
		check(t, made, name, now)
	}
}
