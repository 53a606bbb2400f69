package credential_test

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/credential"
)

func TestCHAP(t *testing.T) {
	const user, password, mutual = "node.session.auth.username", "node.session.auth.password", "node.session.auth.username_in"
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{user: "me\n", password: "p w%@,hunter2\n", "discovery.sendtargets.auth.username": "x"}, ""},
		{map[string]string{password: "hunter2"}, "read Secret s: key " + user},
		{map[string]string{user: "me"}, "read Secret s: key " + password},
		{map[string]string{user: "me", password: "hunter2\nx"}, "read Secret s: key " + password},
		{map[string]string{user: "me", password: strings.Repeat("hunter2", 99)}, "read Secret s: key " + password},
		{map[string]string{user: "me", password: "hunter2", mutual: "you"}, "QEMU does not authenticate targets"},
	} {
		gotUser, got, err := credential.CHAP(mount(t, "..1", tt.files))
		switch {
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%q: %v; want %s", tt.files, err, tt.want)
		case tt.want == "" && (err != nil || gotUser != "me" || got != "p w%@,hunter2"):
			t.Errorf("%q, %q, %v", gotUser, got, err)
		}
	}
}

func TestCephKey(t *testing.T) {
	got, err := credential.CephKey(mount(t, "..1", map[string]string{"key": "aHVudGVyMg==\n"}))
	if err != nil || got != "hunter2" {
		t.Errorf("%q, %v", got, err)
	}
	for _, key := range []string{"", "hunter2!"} {
		_, err := credential.CephKey(mount(t, "..1", map[string]string{"key": key}))
		if err == nil || !strings.Contains(err.Error(), "read Secret s: key key: ") || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
}
