// Package recent remembers a bounded number of values, those that were used last. It leaves locks to its users.
package recent

// Values are the values of keys.
type Values[K comparable, V any] struct {
	size       int
	young, old map[K]V
}

// New returns values without any. It remembers at least size of those that were used last, and at most twice as many.
func New[K comparable, V any](size int) *Values[K, V] {
	return &Values[K, V]{size: size, young: map[K]V{}}
}

// Find returns the value of a key, and remembers it for longer.
func (r *Values[K, V]) Find(key K) (V, bool) {
	if v, ok := r.young[key]; ok {
		return v, true
	}
	v, ok := r.old[key]
	if ok {
		r.Add(key, v)
	}
	return v, ok
}

// Add remembers a value.
func (r *Values[K, V]) Add(key K, v V) {
	if _, has := r.young[key]; !has && len(r.young) >= r.size {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[key] = v
}
