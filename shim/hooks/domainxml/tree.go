package domainxml

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// element is an XML element. Its children and its text are separate: libvirt has no
// element with both.
type element struct {
	name     xml.Name // Space is the namespace's URL
	attrs    map[string]string
	order    []string // names of attributes
	text     string
	children []*element
}

// The bounds of a document. Libvirt's own XML is far smaller.
const (
	maxDepth    = 32
	maxElements = 20_000
)

// parse reads a document of one element. Comments are left out.
func parse(text string) (*element, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	top := &element{}
	open, texts := []*element{top}, []*strings.Builder{{}} // texts are those of the open elements
	for count := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		last := open[len(open)-1]
		switch t := token.(type) {
		case xml.StartElement:
			if count++; count > maxElements || len(open) > maxDepth {
				return nil, fmt.Errorf("more than %d elements, or more than %d within each other", maxElements, maxDepth)
			}
			e, err := newElement(t)
			if err != nil {
				return nil, err
			}
			last.children = append(last.children, e)
			open, texts = append(open, e), append(texts, &strings.Builder{})
		case xml.EndElement:
			last.text = texts[len(texts)-1].String()
			if len(last.children) > 0 || strings.TrimSpace(last.text) == "" {
				last.text = strings.TrimSpace(last.text)
			}
			open, texts = open[:len(open)-1], texts[:len(texts)-1]
		case xml.CharData:
			texts[len(texts)-1].Write(t) // in parts, between comments
		case xml.Directive:
			return nil, errors.New("a document type or an entity is declared")
		}
	}
	if len(top.children) != 1 || strings.TrimSpace(texts[0].String()) != "" {
		return nil, fmt.Errorf("%d elements at the top, not one", len(top.children))
	}
	return top.children[0], nil
}

func newElement(t xml.StartElement) (*element, error) {
	e := &element{name: t.Name, attrs: map[string]string{}}
	for _, a := range t.Attr {
		if a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns" {
			continue // names have their namespaces already
		}
		if _, twice := e.attrs[a.Name.Local]; twice || a.Name.Space != "" {
			return nil, fmt.Errorf("%s: attribute %s appears twice or has a namespace", t.Name.Local, a.Name.Local)
		}
		e.attrs[a.Name.Local] = a.Value
		e.order = append(e.order, a.Name.Local)
	}
	return e, nil
}

// token returns the start of the element. Each element says its namespace.
func (e *element) token(outer string) xml.StartElement {
	t := xml.StartElement{Name: xml.Name{Local: e.name.Local}}
	if e.name.Space != outer {
		t.Attr = append(t.Attr, xml.Attr{Name: xml.Name{Local: "xmlns"}, Value: e.name.Space})
	}
	for _, name := range e.order {
		t.Attr = append(t.Attr, xml.Attr{Name: xml.Name{Local: name}, Value: e.attrs[name]})
	}
	return t
}

// write encodes the element. What libvirt reads is then what was checked, whatever the
// two parsers make of strange XML.
func (e *element) write(to *xml.Encoder, outer string) error {
	start := e.token(outer)
	if err := to.EncodeToken(start); err != nil {
		return err
	}
	if e.text != "" {
		if err := to.EncodeToken(xml.CharData(e.text)); err != nil {
			return err
		}
	}
	for _, child := range e.children {
		if err := child.write(to, e.name.Space); err != nil {
			return err
		}
	}
	return to.EncodeToken(start.End())
}

func (e *element) String() string {
	var text strings.Builder
	to := xml.NewEncoder(&text)
	to.Indent("", "  ")
	if err := errors.Join(e.write(to, ""), to.Flush()); err != nil {
		return "" // a Builder takes everything, and the names were parsed
	}
	return text.String()
}
