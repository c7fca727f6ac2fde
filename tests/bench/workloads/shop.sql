-- Tables of a shop in memory: filling, indexes, joins, grouping, text search, updates and
-- deletions. Integers and text only, so that no rounding can differ.
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, city INTEGER);
CREATE TABLE product(id INTEGER PRIMARY KEY, title TEXT, cents INTEGER);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, product INTEGER, pieces INTEGER,
                    day INTEGER);
BEGIN;
WITH RECURSIVE n(i, r) AS (
  SELECT 1, 12345 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 8000)
INSERT INTO customer SELECT i, printf('%s-%x', substr('annaboriscarladavid', 1 + r / 65536 % 15, 5), r), r / 4096 % 90
FROM n;
WITH RECURSIVE n(i, r) AS (
  SELECT 1, 777 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 2000)
INSERT INTO product SELECT i, 'item ' || hex(r) || ' of series ' || (r / 65536 % 50), r / 1024 % 90000
FROM n;
WITH RECURSIVE n(i, r) AS (
  SELECT 1, 4711 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 160000)
INSERT INTO orders SELECT i, 1 + r / 16 % 8000, 1 + r / 32768 % 2000, 1 + r / 256 % 9, r / 65536 % 365
FROM n;
COMMIT;
CREATE INDEX orders_by_customer ON orders(customer, day);
CREATE INDEX orders_by_product ON orders(product);
SELECT city, count(*), sum(pieces * cents) FROM orders
  JOIN customer ON customer.id = orders.customer JOIN product ON product.id = orders.product
  GROUP BY city ORDER BY 3 DESC LIMIT 10;
SELECT count(*), sum(length(title)) FROM product WHERE title LIKE '%3_3%series 1%';
SELECT name, (SELECT count(*) FROM orders WHERE customer = c.id AND day BETWEEN 100 AND 200) AS n
  FROM customer c ORDER BY n DESC, name LIMIT 10;
SELECT count(DISTINCT customer * 400 + day), min(day), max(pieces) FROM orders;
SELECT day, sum(pieces) OVER (ORDER BY day ROWS 6 PRECEDING) FROM
  (SELECT day, sum(pieces) AS pieces FROM orders GROUP BY day) WHERE day % 50 = 0;
BEGIN;
UPDATE orders SET pieces = pieces + 1 WHERE product IN (SELECT id FROM product WHERE cents % 3 = 0);
UPDATE customer SET name = upper(substr(name, 1, 1)) || substr(name, 2);
DELETE FROM orders WHERE day < 40;
COMMIT;
SELECT product, count(*), sum(pieces) FROM orders GROUP BY product HAVING sum(pieces) > 300
  ORDER BY 3 DESC, 1 LIMIT 10;
SELECT sum(id * pieces % 1000003), count(*) FROM orders;
SELECT substr(name, 1, 3) AS start, count(*) FROM customer GROUP BY start ORDER BY 2 DESC, 1 LIMIT 10;
PRAGMA integrity_check;
