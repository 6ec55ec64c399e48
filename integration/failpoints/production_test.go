package failpoints_test

// productions are the calls of those who give and take away work.
var productions = []*scenario{
	{
		name: "enqueue", wire: "enqueue", twice: true, adds: []string{"x", "y"},
		call: func(v *victim) error { return v.queue.Enqueue(v.ctx, []byte("x"), []byte("y")) },
		left: func(n int) []string {
			all := []string{"a", "b", "c"}
			for range n {
				all = append(all, "x", "y")
			}
			return all
		},
	},
}
