package share

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/recent"
)

const (
	// maxString is the length of strings that are shared, and maxPart that of parts as JSON. Users choose
	// the contents of both.
	maxString = 64
	maxPart   = 1 << 10
	// recentStrings and recentParts bound how many the pool remembers: 1 MiB, and 4 MiB if every part is as long as
	// it may be.
	recentStrings = 4096
	recentParts   = 1024
)

// parts are the types of the parts that equal those of other objects more often than not.
var parts = map[reflect.Type]bool{
	reflect.TypeFor[[]kubevirt.Disk]():                 true,
	reflect.TypeFor[[]kubevirt.Interface]():            true,
	reflect.TypeFor[[]kubevirt.Network]():              true,
	reflect.TypeFor[[]kubevirt.Volume]():               true,
	reflect.TypeFor[*kubevirt.CPU]():                   true,
	reflect.TypeFor[*kubevirt.CPUTopology]():           true,
	reflect.TypeFor[*kubevirt.Features]():              true,
	reflect.TypeFor[*kubevirt.Clock]():                 true,
	reflect.TypeFor[*kubevirt.Machine]():               true,
	reflect.TypeFor[*kubevirt.Memory]():                true,
	reflect.TypeFor[*kubevirt.MemoryStatus]():          true,
	reflect.TypeFor[[]kubevirt.VolumeSnapshotStatus](): true,
	reflect.TypeFor[[]kubevirt.VolumeStatus]():         true,
	reflect.TypeFor[*corev1.Affinity]():                true,
	reflect.TypeFor[corev1.ResourceList]():             true,
	reflect.TypeFor[[]corev1.Container]():              true,
	reflect.TypeFor[[]corev1.Toleration]():             true,
}

// part identifies a part by its type and its JSON.
type part struct {
	is  reflect.Type
	sum [sha256.Size]byte
}

// Pool has the parts and strings of objects that were seen lately. It is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	strings *recent.Values[string, string]
	parts   *recent.Values[part, reflect.Value]
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{strings: recent.New[string, string](recentStrings), parts: recent.New[part, reflect.Value](recentParts)}
}

// Share replaces parts and strings of an object, which is a pointer, by equal ones of other objects.
func (p *Pool) Share(object any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := reflect.ValueOf(object); v.Kind() == reflect.Pointer && !v.IsNil() {
		p.fields(v.Elem())
	}
}

// value shares what is in a variable.
func (p *Pool) value(v reflect.Value) {
	if !parts[v.Type()] {
		p.fields(v)
		return
	}
	if v.IsNil() {
		return
	}
	text, err := json.Marshal(v.Interface())
	if err != nil || len(text) > maxPart {
		p.fields(v)
		return
	}
	key := part{v.Type(), sha256.Sum256(text)}
	if have, ok := p.parts.Find(key); ok {
		v.Set(have)
		return
	}
	p.fields(v)
	p.parts.Add(key, reflect.ValueOf(v.Interface()))
}

// fields shares what the value of a variable refers to.
func (p *Pool) fields(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if n := v.Len(); n > 0 && n <= maxString {
			v.SetString(p.text(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			p.value(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				p.value(v.Index(i))
			}
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() { // not those of a time or a quantity
				p.value(f)
			}
		}
	case reflect.Map:
		if m, ok := reflect.TypeAssert[map[string]string](v); ok {
			for key, value := range m {
				m[p.text(key)] = p.text(value) // Go replaces the key's text, too
			}
		}
	}
}

// text returns a string that equals another one.
func (p *Pool) text(s string) string {
	if len(s) > maxString {
		return s
	}
	if have, ok := p.strings.Find(s); ok {
		return have
	}
	p.strings.Add(s, s)
	return s
}
