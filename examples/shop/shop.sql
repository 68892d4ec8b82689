CREATE TABLE orders (
    id       TEXT PRIMARY KEY,
    customer TEXT NOT NULL,
    total    TEXT NOT NULL,
    refunded TEXT NOT NULL DEFAULT '0.00'
);
INSERT INTO orders (id, customer, total) VALUES
    ('1001', 'Ada Lovelace',    '120.00'),
    ('1002', 'Charles Babbage', '980.00'),
    ('1003', 'Grace Hopper',     '64.50');
