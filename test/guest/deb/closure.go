package deb

import "context"

// Closure is Resolve of names and of all that they depend on, by the first alternatives.
func Closure(ctx context.Context, root string, names ...string) ([]Package, error) {
	var all []Package
	seen := map[string]bool{}
	for len(names) > 0 {
		found, err := Resolve(ctx, root, names...)
		if err != nil {
			return nil, err
		}
		var next []string
		for _, p := range found {
			seen[p.Name] = true
			all = append(all, p)
		}
		for _, p := range found {
			for _, d := range p.Depends {
				if !seen[d] {
					seen[d] = true
					next = append(next, d)
				}
			}
		}
		names = next
	}
	return all, nil
}
