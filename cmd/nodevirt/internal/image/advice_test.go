package image

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// TestAdvice: a registry's refusal has the remedy of that cause.
func TestAdvice(t *testing.T) {
	r, err := newRegistry("example.com/d:1", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err        error
		want, none string
	}{
		{&transport.Error{StatusCode: http.StatusUnauthorized}, `log in with "docker login example.com"`, "quota"},
		{&transport.Error{StatusCode: http.StatusForbidden}, "quota", "log in with"},
		{&transport.Error{StatusCode: http.StatusNotFound}, "is the name right", "login"},
		{errors.New("no child with platform linux/amd64 in index example.com/d:1"), "its index has no image for this platform", "login"},
	} {
		got := r.advice(fmt.Errorf("push: %w", c.err))
		if !strings.Contains(got, c.want) || strings.Contains(got, c.none) {
			t.Errorf("%v: advice %q, want %q", c.err, got, c.want)
		}
	}
}
