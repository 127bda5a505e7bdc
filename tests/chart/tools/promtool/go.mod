module promtools

go 1.26.0
