package store

import "fmt"

func hauls(e *env) string {
	a := haul.ask(e.ctx, e.line, e.q)
	said := fmt.Sprint(a.int("left"))
	a.each("damaged", func(d *decoder) { said += " " + d.string() })
	if a.err != nil {
		return answered(nil, a.err)
	}
	return said
}

// numbered are members of a zset with the numbers of their names.
func numbered(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d=%d", name, 100+i, i))
	}
	return all
}

// putsAside are members of a zset that were put aside.
func putsAside(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d=aside:0", name, 100+i))
	}
	return all
}
