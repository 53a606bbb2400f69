//go:build ui

package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"
)

// patience is for what an emulated guest takes part in.
const patience = time.Minute

// browser is a tab of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex
	answers []answer
	alerts  []string
	logged  []string // by the browser, about the page
}

// answer is what the server said to a request of the page.
type answer struct {
	path   string
	status int64
}

// open shows a page in a browser that has seen nothing yet.
func open(t *testing.T, path string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1400, 1000))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.listen)
	b.do(log.Enable(), network.Enable(), page.Enable(), chromedp.Navigate("http://"+suite.address+path))
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventResponseReceived:
		_, path, _ := strings.Cut(e.Response.URL, suite.address)
		b.answers = append(b.answers, answer{path, e.Response.Status})
	case *log.EventEntryAdded:
		b.logged = append(b.logged, e.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		b.alerts = append(b.alerts, e.Message)
		go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) }()
	}
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.shot("failed")
		b.t.Fatalf("%v; alerts %q; log: %q", err, b.said(), b.logged)
	}
}

// shot keeps a picture of the page with the test's artifacts.
func (b *browser) shot(name string) {
	b.t.Helper()
	var picture []byte
	if err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot(&picture)); err != nil {
		b.t.Log(err)
		return
	}
	assert.NilError(b.t, os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), picture, 0o644))
}

// until waits for a JavaScript expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; {
		var ok bool
		b.do(chromedp.Evaluate(expression, &ok))
		if ok {
			return
		}
		if time.Now().After(end) {
			b.shot("failed")
			b.t.Fatalf("never true: %s; alerts %q; log: %q", expression, b.said(), b.logged)
		}
		b.do(chromedp.Sleep(100 * time.Millisecond))
	}
}

// click clicks an element as a script does, whether or not a menu hides it.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q) != null", selector))
	b.do(chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).click()", selector), nil))
}

// fill gives a field its value, as soon as the field can have it.
func (b *browser) fill(id, value string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => {
		const field = document.getElementById(%q);
		if (field == null) return false;
		field.value = %q;
		if (field.value != %[2]q) return false;
		for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {bubbles: true}));
		return true;
	})()`, id, value))
}

// offers waits until a list has a value. Reload has the page load the list again: the API server asks
// clients to try again while it learns of a new kind, and the UI does not.
func (b *browser) offers(id, value string, reload func()) {
	b.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); reload() {
		var has bool
		b.do(chromedp.Sleep(time.Second), chromedp.Evaluate(
			fmt.Sprintf(`[...document.getElementById(%q).options].some(o => o.value == %q)`, id, value), &has))
		if has {
			return
		}
	}
	b.shot("failed")
	b.t.Fatalf("%s does not offer %s; log %q", id, value, b.logged)
}

// follow opens the link of the page that has a target.
func (b *browser) follow(target string) {
	b.t.Helper()
	b.click(fmt.Sprintf("a[href=%q]", target))
	b.until(fmt.Sprintf("location.pathname == %q", target))
}

// answered waits until the server has answered a request of the page, and the page has read it.
func (b *browser) answered(path string) {
	b.t.Helper()
	has := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.answers, func(a answer) bool { return strings.HasPrefix(a.path, path) })
	}
	for end := time.Now().Add(patience); !has(); {
		if time.Now().After(end) {
			b.t.Fatalf("no answer to %s", path)
		}
		b.do(chromedp.Sleep(100 * time.Millisecond))
	}
	b.do(chromedp.Sleep(2 * time.Second))
}

// said returns the alerts that the page showed.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alerts
}

// refused returns the requests that the server refused, except those that known explains.
func (b *browser) refused(known func(answer) bool) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, a := range b.answers {
		if a.status >= 400 && (known == nil || !known(a)) {
			all = append(all, fmt.Sprintf("%d %s", a.status, a.path))
		}
	}
	return all
}
