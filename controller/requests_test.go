package controller_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// requests are those that a controller has sent, "METHOD /path".
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.all = append(r.all, q.Method+" "+q.URL.Path)
		r.mu.Unlock()
		return next.RoundTrip(q)
	})
}

// take returns the requests since the last time.
func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// with returns those that contain a text.
func with(all []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, text) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
