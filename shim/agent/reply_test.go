package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDecodeProgress(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Result
		fails      bool
	}{
		{"code", `{"return": {"exited": true, "exitcode": 3, "out-data": "b3V0", "err-data": "ZXJy"}}`,
			Result{Stdout: []byte("out"), Stderr: []byte("err"), Code: 3}, false},
		{"signal", `{"return": {"exited": true, "signal": 9, "out-truncated": true}}`, Result{Code: 137, StdoutTruncated: true}, false},
		{"a Windows code", `{"return": {"exited": true, "exitcode": 3221225477}}`, Result{Code: -1073741819}, false},
		{"a signed code", `{"return": {"exited": true, "exitcode": -1}}`, Result{Code: -1}, false},
		{"more fields", `{"id": 1, "return": {"exited": true, "exitcode": 0, "new": [{}]}}`, Result{}, false},
		{"no end", `{"return": {"exited": true}}`, Result{}, true},
		{"a large code", `{"return": {"exited": true, "exitcode": 4294967296}}`, Result{}, true},
		{"a huge code", `{"return": {"exited": true, "exitcode": 1e99}}`, Result{}, true},
		{"no signal", `{"return": {"exited": true, "signal": 0}}`, Result{}, true},
		{"a strange signal", `{"return": {"exited": true, "signal": 4096}}`, Result{}, true},
		{"bad base64", `{"return": {"exited": true, "exitcode": 0, "out-data": "*"}}`, Result{}, true},
		{"no object", `{"return": "yes"}`, Result{}, true},
		{"no return", `{}`, Result{}, true},
		{"null", `null`, Result{}, true},
		{"nothing", ``, Result{}, true},
		{"noise", "\x00\xff{]", Result{}, true},
		{"deep", `{"return": ` + strings.Repeat("[", 100_000), Result{}, true},
		{"two", `{"return": {"exited": true, "exitcode": 0}} {}`, Result{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p progress
			err := decodeReply("guest-exec-status", []byte(c.line), &p)
			var got Result
			if err == nil {
				got, err = p.result()
			}
			if c.fails != errors.Is(err, ErrGarbled) || !c.fails && err != nil {
				t.Fatalf("error %v", err)
			}
			if string(got.Stdout) != string(c.want.Stdout) || string(got.Stderr) != string(c.want.Stderr) ||
				got.Code != c.want.Code || got.StdoutTruncated != c.want.StdoutTruncated {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDecodeRefusal(t *testing.T) {
	for _, line := range []string{
		`{"error": {"class": "CommandNotFound", "desc": "Command guest-exec has been disabled"}}`,
		`{"error": {"class": "GenericError", "desc": "Command guest-exec has been disabled"}}`,
	} {
		if err := decodeReply("guest-exec", []byte(line), nil); !errors.Is(err, ErrDisabled) {
			t.Errorf("%s: %v", line, err)
		}
	}
	err := decodeReply("guest-exec", []byte(`{"error": {"class": "GenericError", "desc": "a\nb\u001b[31m`+strings.Repeat("x", 999)+`"}}`), nil)
	if err == nil || errors.Is(err, ErrDisabled) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("%q", err)
	}
}

func TestInterfaces(t *testing.T) {
	var found []foundInterface
	line := `{"return": [{"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "prefix": 8}]},
		{"name": "eth\u00070", "hardware-address": "52:54:00:00:00:01", "ip-addresses": [
			{"ip-address": "10.0.0.2", "prefix": 24}, {"ip-address": "fe80::1%eth0", "prefix": 64},
			{"ip-address": "10.0.0.3", "prefix": 99}, {"ip-address": "x", "prefix": 0}]},
		{"name": "odd", "hardware-address": "no"}` + strings.Repeat(`, {"name": "n"}`, 100) + `]}`
	if err := decodeReply("guest-network-get-interfaces", []byte(line), &found); err != nil {
		t.Fatal(err)
	}
	all := interfaces(found, nil)
	if len(all) != maxInterfaces || all[0].Name != "eth\uFFFD0" || all[0].MAC != "52:54:00:00:00:01" || all[1].MAC != "" {
		t.Errorf("%d interfaces, %+v", len(all), all[:2])
	}
	if len(all[0].Addresses) != 2 || all[0].Addresses[1].String() != "fe80::1/64" {
		t.Errorf("addresses %v", all[0].Addresses)
	}
}

// TestInterfacesOfManyContainers: a card that came last is kept, though the guest names its containers' interfaces before,
// also if one of those has the card's address: such as a bridge of the guest's.
func TestInterfacesOfManyContainers(t *testing.T) {
	var found []foundInterface
	for i := range 100 {
		found = append(found, foundInterface{Name: fmt.Sprintf("veth%d", i), MAC: fmt.Sprintf("0a:00:00:00:00:%02x", i)})
	}
	found = append([]foundInterface{{Name: "eth0", MAC: "02:00:00:00:00:01"}}, found...)
	found = append(found, foundInterface{Name: "eth1", MAC: "02:00:00:00:00:0A"})
	all := interfaces(found, map[string]string{"02:00:00:00:00:01": "default", "02:00:00:00:00:0a": "lan"})
	if len(all) != maxInterfaces || all[0].Name != "eth0" || all[1].Name != "eth1" || all[2].Name != "veth0" {
		t.Errorf("%d interfaces: %+v", len(all), all[:3])
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"Debian GNU/Linux 12":    "Debian GNU/Linux 12",
		"a\r\n\x1b]0;t\x07":      "a\uFFFD\uFFFD\uFFFD]0;t\uFFFD",
		"\xff":                   "\uFFFD",
		strings.Repeat("ü", 128): strings.Repeat("ü", 128),
		strings.Repeat("ü", 129): strings.Repeat("ü", 128) + "…",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}

// FuzzDecodeReply holds the bounds of what a guest's words can become.
func FuzzDecodeReply(f *testing.F) {
	for _, seed := range []string{
		`{"return": {"exited": true, "exitcode": 0, "out-data": "b3V0"}}`, `{"return": {"exited": false}}`,
		`{"error": {"class": "GenericError", "desc": "no"}}`, `{"return": {"pid": 12}}`, `{"return": [{"name": "lo"}]}`, "\xff{",
		`{"return": {"version": "7.2.22", "supported_commands": [{"name": "guest-exec", "enabled": true}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p progress
		if decodeReply("guest-exec-status", line, &p) == nil && p.Exited {
			if r, err := p.result(); err == nil && len(r.Stdout)+len(r.Stderr) > len(line) {
				t.Errorf("%d bytes became %d and %d", len(line), len(r.Stdout), len(r.Stderr))
			}
		}
		var s started
		if err := decodeReply("guest-exec", line, &s); err == nil && s.check() == nil && s.PID <= 0 {
			t.Errorf("process %d", s.PID)
		} else if err != nil && (len(err.Error()) > 2*maxText+200 || !utf8.ValidString(err.Error())) {
			t.Errorf("error %q", err)
		}
		var found []foundInterface
		if decodeReply("guest-network-get-interfaces", line, &found) != nil {
			return
		}
		all := interfaces(found, map[string]string{"52:54:00:00:00:01": "default"})
		if len(all) > maxInterfaces {
			t.Errorf("%d interfaces", len(all))
		}
		for _, i := range all {
			if len(i.Name) > 4*maxText || len(i.Addresses) > maxAddresses {
				t.Errorf("interface %+v", i)
			}
		}
	})
}
