//go:build docsite

package docsite

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const (
	site = "../../bin/site/"
	docs = "../../docs/"
	// repository precedes the paths of files that are no pages.
	repository = "https://github.com/nodevirt/nodevirt/blob/HEAD/"
)

// page is what the tests need of a page.
type page struct {
	ids     map[string]bool
	links   []string // of a elements
	loads   []string // what a browser requests to show the page
	nav     []string // the links below nav
	text    string
	version string
}

// readSite returns the site's pages by file name.
func readSite(t *testing.T) map[string]*page {
	t.Helper()
	files, err := filepath.Glob(site + "*.html")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d pages in %s (%v): run make docs-site", len(files), site, err)
	}
	all := map[string]*page{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		root, err := html.Parse(f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p := &page{ids: map[string]bool{}}
		p.read(t, root, false)
		all[filepath.Base(file)] = p
	}
	return all
}

// read adds an element and those below it.
func (p *page) read(t *testing.T, n *html.Node, nav bool) {
	nav = nav || n.Data == "nav"
	if n.Type == html.TextNode {
		p.text += n.Data
	}
	for _, a := range n.Attr {
		switch {
		case a.Key == "id":
			if p.ids[a.Val] {
				t.Errorf("id %s is there twice", a.Val)
			}
			p.ids[a.Val] = true
		case a.Key == "href" && n.Data == "a":
			p.links = append(p.links, a.Val)
			if nav {
				p.nav = append(p.nav, a.Val)
			}
		case slices.Contains([]string{"href", "src", "srcset", "data", "poster", "background"}, a.Key):
			p.loads = append(p.loads, a.Val)
		case a.Key == "class" && a.Val == "version":
			p.version = n.FirstChild.Data
		case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
			t.Errorf("element %s has the attribute %s", n.Data, a.Key)
		}
	}
	for c := range n.ChildNodes() {
		p.read(t, c, nav)
	}
}

// TestLinks follows each link of each page to its file and its heading, or into the repository.
func TestLinks(t *testing.T) {
	all := readSite(t)
	for name, p := range all {
		for _, link := range p.links {
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %s: %v", name, link, err)
				continue
			}
			if u.Scheme != "" {
				if file, ok := strings.CutPrefix(link, repository); ok {
					file, _, _ = strings.Cut(file, "#")
					if _, err := os.Stat("../../" + file); err != nil {
						t.Errorf("%s: %s: %v", name, link, err)
					}
				}
				continue
			}
			target := p
			if u.Path != "" {
				if target = all[strings.TrimPrefix(u.Path, "./")]; target == nil {
					t.Errorf("%s: %s: no such page", name, link)
					continue
				}
			}
			if u.Fragment != "" && !target.ids[u.Fragment] {
				t.Errorf("%s: %s: no such heading", name, link)
			}
		}
	}
}

// TestNoForeignRequests: a browser loads nothing but the site's files.
func TestNoForeignRequests(t *testing.T) {
	for name, p := range readSite(t) {
		for _, load := range p.loads {
			if load == "data:," {
				continue
			}
			if u, err := url.Parse(load); err != nil || u.Scheme != "" || u.Host != "" {
				t.Errorf("%s loads %s", name, load)
				continue
			}
			if _, err := os.Stat(site + load); err != nil {
				t.Errorf("%s loads %s: %v", name, load, err)
			}
		}
	}
	foreign := regexp.MustCompile(`https?:|//[a-z]|@import|\burl\(`)
	for _, name := range []string{"style.css", "search.js"} {
		text, err := os.ReadFile(site + name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if m := foreign.FindString(line); m != "" {
				t.Errorf("%s has %q", name, m)
			}
		}
	}
}

var readmeLink = regexp.MustCompile(`\]\((?:\.\./)?([^)#]+)\.md\)`)

// TestNavigation: each page has the links of docs/README.md, in their order, and all pages are there.
func TestNavigation(t *testing.T) {
	readme, err := os.ReadFile(docs + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range readmeLink.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(m[1], "/") { // a file outside of docs/
			want = append(want, repository+m[1]+".md")
			continue
		}
		want = append(want, "./"+strings.ToLower(m[1])+".html")
	}
	all := readSite(t)
	for name, p := range all {
		if !slices.Equal(p.nav, want) {
			t.Errorf("%s: navigation %v, not %v", name, p.nav, want)
		}
		if name != "index.html" && !slices.Contains(want, "./"+name) {
			t.Errorf("%s is not in docs/README.md", name)
		}
		if p.version == "" || p.version == "unknown" {
			t.Errorf("%s: version %q in its header", name, p.version)
		}
	}
	files, err := filepath.Glob(docs + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".md") + ".html"
		if name != "README.html" && all[name] == nil {
			t.Errorf("%s has no page", file)
		}
	}
}

// TestSearchIndex: the index has each page, with its title and text.
func TestSearchIndex(t *testing.T) {
	text, err := os.ReadFile(site + "search-index.js")
	if err != nil {
		t.Fatal(err)
	}
	const most = 400 << 10
	if len(text) > most {
		t.Errorf("the index has %d bytes, more than %d", len(text), most)
	}
	list, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "window.searchIndex = ")
	if !ok {
		t.Fatalf("the index begins with %.50q", text)
	}
	var index []struct{ Title, URL, Text string }
	if err := json.Unmarshal([]byte(strings.TrimSuffix(list, ";")), &index); err != nil {
		t.Fatal(err)
	}
	all := readSite(t)
	for _, e := range index {
		p := all[e.URL]
		if strings.Contains(e.Text, "&rsquo;") {
			t.Errorf("the text of %q has HTML", e.URL)
		}
		if p == nil || e.Title == "" || !strings.Contains(p.text, e.Title) || len(e.Text) < len(p.text)/4 {
			t.Errorf("entry %q of %q has %d bytes of text", e.Title, e.URL, len(e.Text))
		}
		delete(all, e.URL)
	}
	for name := range all {
		t.Errorf("%s is not in the index", name)
	}
}
